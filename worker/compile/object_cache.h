// Compiled kernels on disk, so that what was compiled once on this machine is not compiled again by
// the next process.
//
// A file per kernel, named by its key: SHA-256 of (what compiles ‖ the kernel's Opts ‖ its
// canonical encoding), where "what compiles" covers the compiler's build, its options and the
// processor. A file holds its key and a checksum; one that is damaged, of another key or of another
// format is as good as absent and is removed. Files appear whole (written aside, then renamed), so
// that processes may share a folder and die at any moment.
//
// Whoever reads the cache executes its contents: a folder belongs to one account
// (worker/kernels/account_kernels.h), and supervisors alone read and write it.
//
// Errors: those of the compiler behind the cache; INTERNAL if it returns too few results.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "compiler/target.h"
#include "worker/compile/kernel_compiler.h"

namespace outboard::worker {

// Of one account's files.
inline constexpr int64_t kObjectCacheBytesMax = int64_t{512} << 20;

struct ObjectCacheOptions {
  std::string folder;                        // made if it is not there, for this user only
  std::string compiler;                      // names what compiles; see CompilerIdentity
  int64_t bytes_max = kObjectCacheBytesMax;  // of all files; the least recently used go first
  std::function<void(int64_t bytes)> on_stored = {};  // of each file that was written
};

// A compiler that looks in the folder first. Failures of the disk are silent: they cost time,
// nothing else. Threads: one.
class ObjectCache final : public KernelCompiler {
 public:
  // `inner` outlives the cache.
  ObjectCache(KernelCompiler* inner, ObjectCacheOptions options);

  std::vector<absl::StatusOr<CompiledKernel>> Compile(
      std::span<const KernelSource> kernels) override;
  const Target& target() const override { return inner_->target(); }

  int64_t hits() const { return hits_; }

 private:
  std::string PathOf(const std::string& key) const;
  bool Load(const std::string& key, CompiledKernel* kernel);
  void Store(const std::string& key, const CompiledKernel& kernel);
  void MakeFolder();
  void Trim();

  KernelCompiler* inner_;
  ObjectCacheOptions options_;
  int64_t hits_ = 0;
  int64_t stored_bytes_ = 0;  // since the last Trim
};

// Removes the least recently used objects of all of these folders together, if they have more than
// `bytes_max`, until they have three quarters of that; and what processes that died were writing.
// Returns the bytes that are left. Others may use the folders meanwhile.
int64_t TrimObjects(std::span<const std::string> folders, int64_t bytes_max);

// The program at `path` as it is now, its options in the environment (NOOPT) and what it compiles
// for.
std::string CompilerIdentity(const std::string& path, const Target& target);

}  // namespace outboard::worker
