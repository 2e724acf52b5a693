#pragma once

#include <algorithm>
#include <vector>

#include "envs/model/bottleneck.h"
#include "envs/model/rows.h"
#include "envs/model/scenario.h"

namespace bbrgym {

/// The links of a scenario beside its bottleneck (docs/scenarios.md#topology). A link that the scenario does not have
/// stays idle.
struct FurtherLinks {
  /// `dropped` gets every packet that the queues drop, if it is not null.
  explicit FurtherLinks(const Scenario& scenario, std::vector<Bottleneck::Item>* dropped = nullptr);

  Nanoseconds NextDeparture() const { return std::min(second.departure(), reverse.departure()); }
  void StartStep(Nanoseconds now);
  /// Adds what was measured since `StartStep` to the row of the bottleneck.
  void AddTo(LinkRow& row, Nanoseconds now);

  bool has_second = false;
  bool has_reverse = false;
  Bottleneck second;
  Bottleneck reverse;
};

/// The links that the packets of a flow cross.
struct Route {
  Bottleneck* entry = nullptr;   ///< which data takes
  Bottleneck* second = nullptr;  ///< which data takes behind it; null: its receiver
  Bottleneck* acks = nullptr;    ///< which acknowledgements take; null: they do not queue
};

/// The route of a flow that `Scenario::Check` accepts; `further`: null if the scenario has one link.
Route RouteOf(const Flow& flow, Bottleneck& bottleneck, FurtherLinks* further);

}  // namespace bbrgym
