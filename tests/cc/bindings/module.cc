// bbrgym._testing: the parts of the C++ that tests and measurements drive by hand. It is built with the CMake option
// BBRGYM_TESTING, and is in no wheel.

#include <nanobind/nanobind.h>

#include "tests/cc/bindings/bind.h"

NB_MODULE(_testing, m) {
  // pytest keeps modules until the process ends, so that everything would count as leaked, in all of our modules.
  nanobind::set_leak_warnings(false);
  m.doc() = "Controllers, estimators, transport and link model, for tests to drive by hand (C++).";
  bbrgym::BindControllers(m);
  bbrgym::BindPolicy(m);
  bbrgym::BindEstimators(m);
  bbrgym::BindTransport(m);
  bbrgym::BindModel(m);
  bbrgym::BindPaths(m);
  bbrgym::BindWire(m);
}
