#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "baselines/cc/random.h"

namespace bbrgym {

/// The seeds of everything random in an episode, which follow from its own seed, in every engine alike.
struct EpisodeSeeds {
  EpisodeSeeds(std::uint64_t seed, std::size_t count) {
    Random seeds(seed);
    link = seeds.Next();
    for (std::size_t i = 0; i < count; ++i) flows.push_back(seeds.Next());
  }

  std::uint64_t link;
  std::vector<std::uint64_t> flows;  ///< of each flow: its controller and its return path
};

}  // namespace bbrgym
