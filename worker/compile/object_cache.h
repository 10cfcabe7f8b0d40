// Compiled kernels on disk, so that what was compiled once on this machine is not compiled again by
// the next process.
//
// A file per kernel in a folder of objects (object_folder.h), named by its key: SHA-256 of (what
// compiles ‖ the kernel's Opts ‖ its canonical encoding), where "what compiles" covers the
// compiler's build, its options and the processor.
//
// Caches of one folder in one process, such as those of the executors of a session on several
// devices, compile a kernel once: one of them does, the others wait for its object, or its error.
// They take a few at a time, so that each has some; while there is no other cache of the folder,
// one asks for 64 in one request, which is compiled on as many threads as there are cores.
//
// Errors: those of the compiler behind the cache; INTERNAL if it returns too few results; CANCELLED
// if is_stopped ended a wait.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "compiler/target.h"
#include "worker/compile/kernel_compiler.h"
#include "worker/compile/object_folder.h"

namespace outboard::worker {

struct ObjectCacheOptions {
  std::string folder;                        // made if it is not there, for this user only
  std::string compiler;                      // names what compiles; see CompilerIdentity
  int64_t bytes_max = kObjectCacheBytesMax;  // of all files; the least recently used go first
  std::function<void(int64_t bytes)> on_stored = {};  // of each file that was written
  std::function<bool()> is_stopped = {};  // asked while another cache compiles what is wanted here
};

// A compiler that looks in the folder first. Failures of the disk are silent: they cost time,
// nothing else. Threads: one.
class ObjectCache final : public KernelCompiler {
 public:
  // `inner` outlives the cache.
  ObjectCache(KernelCompiler* inner, ObjectCacheOptions options);
  ~ObjectCache() override;
  ObjectCache(const ObjectCache&) = delete;
  ObjectCache& operator=(const ObjectCache&) = delete;

  std::vector<absl::StatusOr<CompiledKernel>> Compile(
      std::span<const KernelSource> kernels) override;
  const Target& target() const override { return inner_->target(); }

  int64_t hits() const { return hits_; }

 private:
  size_t KernelsAtOnce() const;
  bool Load(const std::string& key, CompiledKernel* kernel);
  void CompileMissing(std::span<const KernelSource> kernels, std::span<const std::string> keys,
                      std::vector<size_t> missing,
                      std::vector<absl::StatusOr<CompiledKernel>>& results);

  KernelCompiler* inner_;
  const std::string compiler_, folder_path_;
  const std::function<bool()> is_stopped_;
  ObjectFolder folder_;
  int64_t hits_ = 0;
};

// The program at `path` as it is now, its options in the environment (NOOPT) and what it compiles
// for.
std::string CompilerIdentity(const std::string& path, const Target& target);

}  // namespace outboard::worker
