// `outboard push`, `pull` and `store`: files in the cloud under names, with $CLOUD_HOST and
// $CLOUD_KEY.
#pragma once

#include <string>
#include <vector>

namespace outboard::cli {

struct StoreFlags {
  std::string gateway;             // empty: $CLOUD_HOST, else this machine's
  std::vector<std::string> files;  // push
  std::vector<std::string> names;  // rm; pull, pin, unpin: one
  std::string name;                // push: of one file
  std::string output;              // pull
  std::string prefix;              // ls
  bool json = false;
};

// Each returns the exit code: 0, 1, 2, or 130 if Ctrl-C interrupted a transfer; repeating the same
// command resumes it.
int RunPush(const StoreFlags& flags);
int RunPull(const StoreFlags& flags);
int RunStoreList(const StoreFlags& flags);
int RunStoreRemove(const StoreFlags& flags);
int RunStorePin(const StoreFlags& flags, bool pinned);
int RunStoreUsage(const StoreFlags& flags);

}  // namespace outboard::cli
