#pragma once

namespace bbrgym
{

/// Whether two look-ups in ns-3's list of sent packets take our short way (the default) or ns-3's
/// own; the trajectories are the same, bit for bit (a test compares). See scoreboard.cc.
void UseFastScoreboard(bool isFast);

} // namespace bbrgym
