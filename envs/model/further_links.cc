#include "envs/model/further_links.h"

namespace bbrgym {

FurtherLinks::FurtherLinks(const Scenario& scenario, std::vector<Bottleneck::Item>* dropped) {
  // Neither has anything random.
  const auto second_link = scenario.SecondLink();
  const auto reverse_link = scenario.ReverseLink();
  has_second = second_link.has_value();
  has_reverse = reverse_link.has_value();
  if (second_link) second.Reset(*second_link, 0, dropped);
  if (reverse_link) reverse.Reset(*reverse_link, 0, dropped);
}

void FurtherLinks::StartStep(Nanoseconds now) {
  second.StartStep(now);
  reverse.StartStep(now);
}

void FurtherLinks::AddTo(LinkRow& row, Nanoseconds now) {
  if (has_second) AddSecondLink(row, second.GetRow(now));
  if (has_reverse) AddReverseLink(row, reverse.GetRow(now));
}

Route RouteOf(const Flow& flow, Bottleneck& bottleneck, FurtherLinks* further) {
  if (!further) return {.entry = &bottleneck};
  const FlowPath path = flow.Path();
  if (path == FlowPath::kReverse) return {.entry = &further->reverse, .acks = &bottleneck};
  if (path == FlowPath::kSecondHop) return {.entry = &further->second};
  return {.entry = &bottleneck,
          .second = path == FlowPath::kForward && further->has_second ? &further->second : nullptr,
          .acks = further->has_reverse ? &further->reverse : nullptr};
}

}  // namespace bbrgym
