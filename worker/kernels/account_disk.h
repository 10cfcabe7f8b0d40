// Keeps what a worker stores of all its accounts' kernels within a limit, however many accounts
// there are, and across restarts: objects (worker/compile/object_cache.h) one by one, measurements
// (worker/tuning/tuning_store.h) account by account, the least recently used first. Workers of one
// machine may share the folders; each keeps the limits.
//
//   <objects>/<account>/*.obj         used: when its file was last written or loaded
//   <measurements>/<account>/         used: when it was last opened (HeldFolder)
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace outboard::worker {

struct AccountDiskOptions {
  std::string objects;       // a folder with a folder for each account; empty: none are kept
  std::string measurements;  // likewise
  int64_t objects_bytes_max = 0;
  int64_t measurements_bytes_max = 0;
};

// An account's folder of measurements while its files are open: nobody removes it meanwhile, and it
// was used last when it was taken last.
class HeldFolder {
 public:
  HeldFolder() = default;
  enum For { kUse, kLook };  // a look is no use
  // Makes the folder, for this user only, if it is not there.
  static HeldFolder Take(const std::string& folder, For what = kUse);
  HeldFolder(HeldFolder&& other) noexcept;
  HeldFolder& operator=(HeldFolder&& other) noexcept;
  ~HeldFolder();

 private:
  int fd_ = -1;
};

// Removes whole folders of `accounts`, if they have more than `bytes_max` together, until they have
// three quarters of that; leaves those that are held. Returns the bytes that are left.
int64_t TrimMeasurements(const std::string& accounts, int64_t bytes_max);
// TrimObjects over the folders of `accounts`; removes those that are empty then.
int64_t TrimAccountObjects(const std::string& accounts, int64_t bytes_max);

// Trims at the start, and when much has been written since. Threads: any; one of its own, of low
// priority, does the work.
class AccountDisk {
 public:
  explicit AccountDisk(AccountDiskOptions options);
  ~AccountDisk();

  void StoredObject(int64_t bytes);
  void OpenedMeasurements();  // they may grow to their file's limit

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace outboard::worker
