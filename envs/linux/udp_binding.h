#pragma once

#include <nanobind/nanobind.h>

namespace bbrgym {

/// Adds one end of a flow over a UDP socket, for two machines.
void BindUdp(nanobind::module_& m);

}  // namespace bbrgym
