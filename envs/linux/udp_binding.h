#pragma once

#include <nanobind/nanobind.h>

namespace bbrgym {

/// Adds both ends of flows over UDP sockets, for two machines.
void BindUdp(nanobind::module_& m);

}  // namespace bbrgym
