// `outboard cache`: lists, explains, exports, imports and removes the tuning results of this
// machine's workers (worker/tuning/tuning_store.h).
#pragma once

#include <string>

namespace outboard::cli {

struct CacheFlags {
  std::string store;   // the tuning store; empty: where workers store it
  std::string kernel;  // the first digits of an id
  std::string file;    // of export and import; empty: stdout, stdin
  bool all = false;
};

// Each returns the exit code.
int RunCacheList(const CacheFlags& flags);
// Prints all measured choices of Opts for one kernel, the fastest first.
int RunCacheExplain(const CacheFlags& flags);
int RunCacheExport(const CacheFlags& flags);
// Adds the file's entries to the store. Entries of other hardware are stored but not used here.
int RunCacheImport(const CacheFlags& flags);
int RunCacheRemove(const CacheFlags& flags);

}  // namespace outboard::cli
