// The program `outboard-compiler`: the only one that links LLVM.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>

#include "base/environment.h"
#include "worker/compile/compile_messages.h"
#include "worker/compile/compile_process.h"
#include "worker/compile/in_process_compiler.h"
#include "worker/process/child_process.h"
#include "worker/process/message_io.h"
#include "worker/sandbox/sandbox_limits.h"

namespace outboard::worker {
namespace {

// Also without a sandbox. A sanitizer reserves terabytes of address space for its shadow memory and
// needs more of it as the program goes on, so its builds have no limit.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr rlim_t kMemoryBytesMax = RLIM_INFINITY;
#else
constexpr rlim_t kMemoryBytesMax = limits::kCompilerAddressBytes;
#endif

// Another one once there is a kernel that it may be the fault of.
int exit_without_memory = kExitNoMemoryAtStart;

// A table that is growing takes no exception, and LLVM none at all.
void EndWithoutMemory() {
  constexpr char kWords[] = "memory has ended\n";
  if (write(STDERR_FILENO, kWords, sizeof kWords - 1) < 0) _exit(exit_without_memory);
  _exit(exit_without_memory);
}

// Takes all address space that the limit leaves, but for so much of it. What is out of reach takes
// no memory of the machine.
void LeaveRoom(size_t bytes) {
  const auto take = [](size_t size) {
    return mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  };
  void* const room = take(bytes);
  for (size_t size = size_t{1} << 30; size >= 4096;)
    if (take(size) == MAP_FAILED) size /= 2;
  if (room != MAP_FAILED) munmap(room, bytes);
}

// For tests of what happens when a process fails; only with OUTBOARD_BOX_FAULTS set.
void ObeyFault(const std::string& kernel) {
  if (std::getenv("OUTBOARD_BOX_FAULTS") == nullptr) return;
  if (kernel == "!abort") std::abort();
  if (kernel == "!hang") pause();
}

// "room 64", before the first kernel, or "start in 64", before all else: KiB.
void ObeyRoom(const char* when) {
  const char* const fault = std::getenv("OUTBOARD_BOX_FAULTS");
  unsigned long kilobytes = 0;
  if (fault != nullptr && std::sscanf(fault, when, &kilobytes) == 1) LeaveRoom(kilobytes << 10);
}

// `compiler` is that of the request before, and is kept if the target is the same.
proto::CompileReply Answer(CompileOptions options, const proto::CompileRequest& request,
                           std::unique_ptr<InProcessCompiler>& compiler) {
  for (const proto::KernelSource& source : request.kernels()) ObeyFault(source.encoding());
  proto::CompileReply reply;
  absl::StatusOr<Target> target = TargetOfRequest(request);
  if (!target.ok()) {
    for (int i = 0; i < request.kernels_size(); ++i)
      *reply.add_results() = ToResult(target.status());
    return reply;
  }
  options.target = *std::move(target);
  if (compiler == nullptr || compiler->target() != options.target)
    compiler = std::make_unique<InProcessCompiler>(std::move(options));
  for (absl::StatusOr<CompiledKernel>& compiled : compiler->Compile(FromRequest(request)))
    *reply.add_results() = ToResult(std::move(compiled));
  return reply;
}

}  // namespace

int CompileProcessMain() {
  prctl(PR_SET_NAME, "outboard-compil");  // else it is that of a descriptor (ProgramFile::file)
  const rlimit memory{kMemoryBytesMax, kMemoryBytesMax}, no_core{0, 0};
  setrlimit(RLIMIT_AS, &memory);
  setrlimit(RLIMIT_CORE, &no_core);
  BeginAsChild();
  std::set_new_handler(EndWithoutMemory);
  CompileOptions options;
  const char* const debug = std::getenv("DEBUG");
  options.dump = debug != nullptr && std::atoi(debug) >= 5;
  options.no_opt = IsSet("NOOPT");
  ObeyRoom("start in %lu");
  WarmUpCompiler();
  ObeyRoom("room %lu");
  proto::CompileRequest request;
  std::unique_ptr<InProcessCompiler> compiler;
  while (ReadMessage(kChildSocket, &request).ok()) {
    exit_without_memory = kExitNoMemory;
    if (!WriteMessage(kChildSocket, Answer(options, request, compiler)).ok()) break;
  }
  return 0;
}

}  // namespace outboard::worker

// Not by cli/arguments.h: nothing but a compiler is linked into what reads a tenant's kernels.
int main(int argc, char** argv) {
  if (argc == 1) return outboard::worker::CompileProcessMain();
  const std::string argument = argv[1];
  if (argc == 2 && (argument == "--help" || argument == "-h")) {
    std::puts(
        "Usage: outboard-compiler\n"
        "Compiles the kernels of an `outboard` worker, which starts it and finds it in\n"
        "its own folder. It takes no arguments, and does nothing when run by hand.\n"
        "Environment: DEBUG=5 prints each kernel, NOOPT=1 leaves kernels as they are.");
    return 0;
  }
  std::fputs("outboard-compiler: it takes no arguments; see `outboard-compiler --help`\n", stderr);
  return 2;
}
