#pragma once

#include <nanobind/nanobind.h>

/// What each file of this folder adds to bbrgym._testing.
namespace bbrgym {

void BindControllers(nanobind::module_& m);
void BindPolicy(nanobind::module_& m);
void BindEstimators(nanobind::module_& m);
void BindTransport(nanobind::module_& m);
void BindModel(nanobind::module_& m);
void BindPaths(nanobind::module_& m);
void BindWire(nanobind::module_& m);

}  // namespace bbrgym
