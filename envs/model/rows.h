#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <limits>

#include "baselines/cc/controller.h"

/// The rows that every engine gives after a step: one per flow and one for the link. envs/columns.def lists the
/// columns.
namespace bbrgym {

struct FlowRow {
#define FLOW_COLUMN(name, meaning) double name;
#include "envs/columns.def"
  Metrics metrics;
};

/// What the row of the bottleneck says about the other links.
struct FurtherLinkRow {
#define FURTHER_LINK_COLUMN(name, meaning) double name;
#include "envs/columns.def"
};

struct LinkRow {
#define LINK_COLUMN(name, meaning) double name;
#include "envs/columns.def"
  FurtherLinkRow further;
};

struct Column {
  const char* name;
  const char* meaning;
};

inline constexpr Column kFlowColumns[] = {
#define FLOW_COLUMN(name, meaning) {#name, meaning},
#include "envs/columns.def"
#define METRIC(name, meaning) {#name, meaning},
#include "baselines/cc/metrics.def"
#undef METRIC
};

inline constexpr Column kLinkColumns[] = {
#define LINK_COLUMN(name, meaning) {#name, meaning},
#define FURTHER_LINK_COLUMN(name, meaning) {#name, meaning},
#include "envs/columns.def"
};

/// How many columns a row has.
template <typename Row>
inline constexpr std::size_t kColumnCount = sizeof(Row) / sizeof(double);

static_assert(kColumnCount<FlowRow> == std::size(kFlowColumns) && kColumnCount<LinkRow> == std::size(kLinkColumns));

/// Whether a flow took part in a step: it was there for some of it. What was in flight at its end may be acknowledged
/// later. NaN means no.
inline bool TookPart(const FlowRow& row) {
  return row.is_active > 0.0;
}

/// Adds what the row of the second link says to that of the bottleneck.
inline void AddSecondLink(LinkRow& row, const LinkRow& second) {
  row.further.second_utilisation = second.utilisation;
  row.further.second_queue_mean_ms = second.queue_mean_ms;
  row.further.second_drops = second.drops;
}

/// Adds what the row of the reverse link says to that of the bottleneck.
inline void AddReverseLink(LinkRow& row, const LinkRow& reverse) {
  row.further.reverse_utilisation = reverse.utilisation;
  row.further.reverse_queue_mean_ms = reverse.queue_mean_ms;
  row.further.reverse_drops = reverse.drops;
}

/// The values of a row in the order of its columns.
template <typename Row>
std::array<double, kColumnCount<Row>> ValuesOf(const Row& row) {
  return std::bit_cast<std::array<double, kColumnCount<Row>>>(row);
}

/// The row of what does not exist: all NaN.
template <typename Row>
Row EmptyRow() {
  std::array<double, kColumnCount<Row>> values;
  values.fill(std::numeric_limits<double>::quiet_NaN());
  return std::bit_cast<Row>(values);
}

}  // namespace bbrgym
