#pragma once

namespace bbrgym
{

/// Chooses between our short look-ups in ns-3's list of sent packets (the default) and ns-3's own.
/// Trajectories are the same to the last bit (a test compares them). See scoreboard.cc.
void UseFastScoreboard(bool isFast);

} // namespace bbrgym
