// `outboard cache`: what this machine's workers have learnt about kernels
// (worker/tuning/tuning_store.h).
#pragma once

#include <string>

namespace outboard::cli {

struct CacheFlags {
  std::string store;   // the file; empty: where workers keep it
  std::string kernel;  // the first digits of an id
  std::string file;    // of export and import; empty: stdout, stdin
  bool all = false;
};

// Each returns the exit code.
int RunCacheList(const CacheFlags& flags);
// Every choice of one kernel that was measured, the fastest first.
int RunCacheExplain(const CacheFlags& flags);
int RunCacheExport(const CacheFlags& flags);
// Adds to what is known; entries of other hardware are kept and not used here.
int RunCacheImport(const CacheFlags& flags);
int RunCacheRemove(const CacheFlags& flags);

}  // namespace outboard::cli
