// Environment variables that several parts read. Threads: any, as long as none changes the
// environment.
#pragma once

#include <string>

namespace outboard {

// Whether a switch is on: set, not empty and not "0".
bool IsSet(const char* name);

// The folder of this user's caches: $XDG_CACHE_HOME/outboard, else ~/.cache/outboard. Not made here.
// A variable that is empty counts as one that is not set; "" where there is no home either.
std::string CacheFolder();

}  // namespace outboard
