// What the environment says to more than one part of a worker. Threads: any, while nobody changes
// the environment.
#pragma once

#include <string>

namespace outboard::worker {

// Whether a switch is on: set, not empty and not "0".
bool IsSet(const char* name);

// Where this user's caches are: $XDG_CACHE_HOME/outboard, else ~/.cache/outboard. Not made here.
// A variable that is empty counts as one that is not set; "" where there is no home either.
std::string CacheFolder();

}  // namespace outboard::worker
