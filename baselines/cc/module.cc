// bbrgym._controllers: the registry, and what agents see of a flow.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "baselines/cc/policy/features.h"
#include "baselines/cc/registry.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace bbrgym {
namespace {

using Table = nb::ndarray<const double, nb::ndim<2>, nb::device::cpu>;
using FeatureEntry = std::tuple<std::string, std::vector<std::string>, double, double, double, std::string>;

}  // namespace

NB_MODULE(_controllers, m) {
  m.doc() = "The registry of congestion controllers, and the features that agents see (C++).";

  m.def(
      "controllers",
      [] {
        nb::typed<nb::dict, std::string, std::string> entries;
        for (const ControllerEntry& entry : ControllerRegistry()) {
          entries[nb::cast(entry.name)] = nb::cast(entry.description);
        }
        return entries;
      },
      "Name and one line about every registered controller.");
  m.def(
      "defaults",
      [](const std::string& name) {
        nb::typed<nb::dict, std::string, double> defaults;
        for (const auto& [parameter, value] : FindController(name).defaults) {
          defaults[nb::cast(parameter)] = nb::cast(value);
        }
        return defaults;
      },
      "name"_a, "The parameters of a controller with their defaults. Raises ValueError for an unknown name.");
  m.def(
      "check",
      [](const std::string& name, const ParameterValues& parameters) {
        MakeController(name, Connection{}, parameters);
      },
      "name"_a, "parameters"_a, "Raises ValueError, saying why, unless the controller takes these parameters.");
  m.def(
      "policy_features",
      [] {
        std::vector<FeatureEntry> features;
        for (const PolicyFeature& it : PolicyFeatures()) {
          features.emplace_back(it.name, it.Columns(), it.low, it.high, it.neutral, it.meaning);
        }
        return features;
      },
      "Name, columns, lowest, highest and neutral value, and meaning of every feature that an agent can see.");

  nb::class_<PolicyTable>(m, "PolicyTable", "Chosen features of flows, from a table of their rows.")
      .def(nb::init<const std::vector<std::string>&, const std::vector<std::string>&>(), "features"_a, "columns"_a,
           "The features, and the table's columns, of which `took_part` says whose features are neutral. Raises "
           "ValueError.")
      .def(
          "evaluate",
          [](const PolicyTable& it, const Table& table) {
            if (table.shape(0) != it.columns()) {
              throw std::invalid_argument("a table of " + std::to_string(table.shape(0)) +
                                          " columns is not possible: it must have " + std::to_string(it.columns()));
            }
            const std::size_t flows = table.shape(1);
            auto values = std::make_unique<float[]>(flows * it.size());
            for (std::size_t flow = 0; flow < flows; ++flow) {
              it.Evaluate(table.data() + static_cast<std::ptrdiff_t>(flow) * table.stride(1), table.stride(0),
                          values.get() + flow * it.size());
            }
            nb::capsule owner(values.get(), [](void* array) noexcept { delete[] static_cast<float*>(array); });
            return nb::ndarray<nb::numpy, float, nb::ndim<2>>(values.release(), {flows, it.size()}, owner);
          },
          "table"_a, "From shape (columns, flows) to (flows, features). Raises ValueError.");
}

}  // namespace bbrgym
