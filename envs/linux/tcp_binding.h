#pragma once

#include <nanobind/nanobind.h>

namespace bbrgym {

/// Adds the sending end of flows over the kernel's TCP, for two machines, and policies in integers.
void BindTcp(nanobind::module_& m);

}  // namespace bbrgym
