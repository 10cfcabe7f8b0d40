// Environment variables that several folders read. Threads: any, as long as no thread changes the
// environment.
#pragma once

#include <string>

namespace outboard {

// True if a switch is on: set, not empty and not "0".
bool IsSet(const char* name);

// Returns the folder of this user's caches: $XDG_CACHE_HOME/outboard, else ~/.cache/outboard; "" if
// there is no home folder either. An empty variable counts as unset. Does not create the folder.
std::string CacheFolder();

}  // namespace outboard
