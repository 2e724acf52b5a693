// bbrgym._controllers: the registry, and what agents see of a flow.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "baselines/cc/elementary.h"
#include "baselines/cc/policy/features.h"
#include "baselines/cc/policy/gains.h"
#include "baselines/cc/policy/network.h"
#include "baselines/cc/registry.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace bbrgym {
namespace {

using Table = nb::ndarray<const double, nb::ndim<2>, nb::device::cpu>;
using ActionTable = nb::ndarray<const double, nb::shape<-1, 2>, nb::device::cpu>;
using GainTable = nb::ndarray<const double, nb::shape<2, -1>, nb::device::cpu>;
using PerFlow = nb::ndarray<const double, nb::ndim<1>, nb::device::cpu>;
using Observations = nb::ndarray<const float, nb::shape<-1, -1>, nb::c_contig, nb::device::cpu>;
using States = nb::ndarray<float, nb::shape<-1, -1>, nb::c_contig, nb::device::cpu>;
using FeatureEntry =
    std::tuple<std::string, std::vector<std::string>, double, double, double, std::string, std::string>;

std::vector<std::string> NamesOf(const std::vector<PolicyColumn>& columns) {
  std::vector<std::string> names;
  for (const PolicyColumn wanted : columns) {
    for (const auto& [name, column] : PolicyColumnsByName()) {
      if (column == wanted) names.emplace_back(name);
    }
  }
  return names;
}

/// An array that becomes NumPy's.
template <typename Value>
class NewTable {
 public:
  NewTable(std::size_t rows, std::size_t columns)
      : rows_(rows), columns_(columns), values_(std::make_unique<Value[]>(rows * columns)) {}

  Value* Row(std::size_t row) { return values_.get() + row * columns_; }

  nb::ndarray<nb::numpy, Value, nb::ndim<2>> ToNumPy() {
    nb::capsule owner(values_.get(), [](void* array) noexcept { delete[] static_cast<Value*>(array); });
    return {values_.release(), {rows_, columns_}, owner};
  }

 private:
  std::size_t rows_;
  std::size_t columns_;
  std::unique_ptr<Value[]> values_;
};

GainMap MakeGainMap(const std::pair<double, double>& cwnd_gain, const std::pair<double, double>& pacing_gain,
                    int cwnd_scale) {
  return {.cwnd = {cwnd_gain.first, cwnd_gain.second},
          .pacing = {pacing_gain.first, pacing_gain.second},
          .cwnd_scale = static_cast<CwndScale>(cwnd_scale)};
}

nb::ndarray<nb::numpy, double, nb::ndim<2>> GainsOf(const GainMap& map, const ActionTable& actions,
                                                    const std::optional<PerFlow>& bdp_packets) {
  const std::size_t flows = actions.shape(0);
  if (!bdp_packets && map.cwnd_scale == CwndScale::kPackets) {
    throw std::invalid_argument("cwnd_scale='packets' needs the flows' bdp_packets");
  }
  if (bdp_packets && bdp_packets->shape(0) != flows) {
    throw std::invalid_argument("bdp_packets must have one value per flow");
  }
  NewTable<double> gains(2, flows);
  for (std::size_t flow = 0; flow < flows; ++flow) {
    const Action action{actions(flow, 0), actions(flow, 1)};
    if (std::isnan(action.cwnd) || std::isnan(action.pacing))
      throw std::invalid_argument("actions must be numbers of shape (flows, 2)");
    const Gains found = map.ToGains(action, bdp_packets ? (*bdp_packets)(flow) : 0.0);
    gains.Row(0)[flow] = found.cwnd;
    gains.Row(1)[flow] = found.pacing;
  }
  return gains.ToNumPy();
}

nb::ndarray<nb::numpy, float, nb::ndim<2>> ActionsFor(const GainMap& map, const GainTable& gains,
                                                      const PerFlow& bdp_packets) {
  const std::size_t flows = gains.shape(1);
  if (bdp_packets.shape(0) != flows) throw std::invalid_argument("bdp_packets must have one value per flow");
  NewTable<float> actions(flows, 2);
  for (std::size_t flow = 0; flow < flows; ++flow) {
    const Action found = map.ToAction({gains(0, flow), gains(1, flow)}, bdp_packets(flow));
    actions.Row(flow)[0] = static_cast<float>(found.cwnd);
    actions.Row(flow)[1] = static_cast<float>(found.pacing);
  }
  return actions.ToNumPy();
}

nb::ndarray<nb::numpy, float, nb::ndim<2>> Forward(const PolicyNetwork& policy, const Observations& observations,
                                                   const States& state) {
  const std::size_t count = observations.shape(0);
  if (observations.shape(1) != policy.inputs() || state.shape(0) != count || state.shape(1) != policy.state_size()) {
    const auto shape = [](const auto& array) {
      return "(" + std::to_string(array.shape(0)) + ", " + std::to_string(array.shape(1)) + ")";
    };
    throw std::invalid_argument("observations and state must have the shapes (N, " + std::to_string(policy.inputs()) +
                                ") and (N, " + std::to_string(policy.state_size()) + "), got " + shape(observations) +
                                " and " + shape(state));
  }
  NewTable<float> actions(count, 2);
  {
    const nb::gil_scoped_release release;
    PolicyNetwork::Scratch scratch = policy.MakeScratch();
    for (std::size_t i = 0; i < count; ++i) {
      const Action action =
          policy.Act(observations.data() + i * policy.inputs(), state.data() + i * policy.state_size(), scratch);
      actions.Row(i)[0] = static_cast<float>(action.cwnd);
      actions.Row(i)[1] = static_cast<float>(action.pacing);
    }
  }
  return actions.ToNumPy();
}

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
      "Return {name: one line about it} of every registered controller.");
  m.def(
      "defaults",
      [](const std::string& name) {
        nb::typed<nb::dict, std::string, double> defaults;
        for (const auto& [parameter, value] : FindController(name).defaults) {
          defaults[nb::cast(parameter)] = nb::cast(value);
        }
        return defaults;
      },
      "name"_a, "Return the parameters of a controller with their defaults. Raises ValueError for an unknown name.");
  m.def(
      "check",
      [](const std::string& name, const ParameterValues& parameters) {
        MakeController(name, Connection{}, parameters);
      },
      "name"_a, "parameters"_a, "Raise ValueError, with the reason, unless the controller takes these parameters.");
  m.def(
      "policy_features",
      [] {
        std::vector<FeatureEntry> features;
        for (const PolicyFeature& it : PolicyFeatures()) {
          features.emplace_back(it.name, NamesOf(it.columns), it.low, it.high, it.neutral, it.code, it.meaning);
        }
        return features;
      },
      "Return name, columns, lowest, highest and neutral value, formula in C99, and meaning of every feature that an "
      "agent can see.");
  m.def(
      "policy_start",
      [] {
        nb::typed<nb::dict, std::string, double> row;
        const PolicyColumns start = PolicyColumns::AtStart();
        for (const auto& [name, column] : PolicyColumnsByName()) row[name] = start.*column;
        return row;
      },
      "Return the columns of a policy's first decision, when the connection is set up; NaN where it knows nothing "
      "yet.");

  constexpr std::pair<const char*, double (*)(double)> kElementary[] = {
      {"log", Log},   {"log2", Log2}, {"log10", Log10}, {"exp", Exp},
      {"exp2", Exp2}, {"cbrt", Cbrt}, {"sinh", Sinh},   {"asinh", Asinh},
  };
  for (const auto& [name, function] : kElementary) {
    m.def(name, function, "x"_a, "As the function of `math`, but with the same bits on every machine.");
  }
  m.def("pow", &Pow, "x"_a, "y"_a, "Return x^y for x >= 0 and y > 0, with the same bits on every machine.");

  m.attr("PACKETS_STEEPNESS") = kPacketsSteepness;
  m.attr("LEAST_BDP") = kLeastBdp;
  nb::class_<GainMap>(m, "GainMap", "What actions mean: see `bbrgym.envs.action.Action`.")
      .def(nb::new_(&MakeGainMap), "cwnd_gain"_a, "pacing_gain"_a, "cwnd_scale"_a,
           "The bounds of both gains (low, high), and the index of cwnd_scale in `CWND_SCALES`.")
      .def("gains", &GainsOf, "actions"_a, "bdp_packets"_a.none(),
           "From actions, shape (flows, 2), and BDPs, shape (flows,), to gains, shape (2, flows). Only \"packets\" "
           "needs "
           "the BDPs, NaN without an estimate. Raises ValueError for NaN in actions.")
      .def("actions", &ActionsFor, "gains"_a, "bdp_packets"_a, "The inverse of `gains`, as float32.");

  nb::class_<PolicyTable>(m, "PolicyTable", "Computes chosen features of flows from a table of their rows.")
      .def(
          nb::init<const std::vector<std::string>&, const std::vector<std::string>&>(), "features"_a, "columns"_a,
          "The features, and the columns of the table. Where the column `took_part` is 0, features are neutral. Raises "
          "ValueError.")
      .def(
          "evaluate",
          [](const PolicyTable& it, const Table& table) {
            if (table.shape(0) != it.columns()) {
              throw std::invalid_argument("the table must have " + std::to_string(it.columns()) + " columns, got " +
                                          std::to_string(table.shape(0)));
            }
            const std::size_t flows = table.shape(1);
            NewTable<float> values(flows, it.size());
            for (std::size_t flow = 0; flow < flows; ++flow) {
              it.Evaluate(table.data() + static_cast<std::ptrdiff_t>(flow) * table.stride(1), table.stride(0),
                          values.Row(flow));
            }
            return values.ToNumPy();
          },
          "table"_a, "From shape (columns, flows) to (flows, features). Raises ValueError.");

  nb::class_<PolicyNetwork>(m, "PolicyNetwork", "A trained policy, as the controller `policy` runs it.")
      .def(nb::new_([](const nb::bytes& bytes) {
             // Bindings know no const.
             return std::const_pointer_cast<PolicyNetwork>(
                 PolicyNetwork::Parse(std::string_view(bytes.c_str(), bytes.size())));
           }),
           "policy"_a, "The bytes of a policy. Raises ValueError for anything else.")
      .def_prop_ro("inputs", &PolicyNetwork::inputs, "Length of an observation.")
      .def_prop_ro("state_size", &PolicyNetwork::state_size, "Length of the state of a flow; 0 without an LSTM.")
      .def(
          "forward", &Forward, "observations"_a, "state"_a,
          "From shape (N, inputs) to actions (N, 2). Updates `state`, shape (N, state_size): the hidden and cell state "
          "of each LSTM layer in turn, zeros at the beginning of an episode. Raises ValueError for other shapes.");
}

}  // namespace bbrgym
