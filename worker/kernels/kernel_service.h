// The supervisor's side of one process that runs tenants' kernels (an executor, or the search in
// idle time): compiles for it and keeps what is measured, over the process's kernel socket
// (proto/kernels.proto). The process may be hostile.
//
// Limits. One request is read at a time, of at most kKernelRequestBytesMax and
//   kKernelRequestFieldsMax (worker/process/message_limits.h), and answered before the next is
//   read: a process makes its supervisor hold one request and one reply. Whatever is not understood
//   closes the socket, and the process gets nothing compiled from then on.
// What is the supervisor's to know. What is compiled for: this machine's processor, with the cores
//   of the session's device, unless the device has a driver, which only the process can ask; then
//   its first request decides. On which hardware a measurement was made. Whether it may be shared
//   (IsShareableForm in worker/tuning/tuning_key.h). Whether the process searches at all, and how
//   widely (SearchRights).
// Cores. Compile processes use those of the session's device, like its executor.
// Stop. Whatever makes the socket readable while a compilation is in flight ends that compilation:
//   CancelCompile, the end of the process, and the destructor. Its processes are then killed.
//
// Threads. Each service has a thread of its own, which starts the compile processes (Linux kills
//   one when the thread that started it ends), reads and writes the account's files, and ends in
//   the destructor. The owner's calls may come from any one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/kernels/account_kernels.h"
#include "worker/process/child_process.h"

namespace outboard::worker {

// What a process may ask for besides kernels for its steps.
struct SearchRights {
  // Of searches: compiles candidates, and adds what it measured. 0: it does not search.
  int width_max = 0;
  bool uses_idle_time = false;  // says what its kernels cost, and takes better ones over
  bool takes_demands = false;   // searches for what the account's kernels have cost
};

struct KernelServiceOptions {
  std::string compiler;     // a program; empty: "outboard-compiler" beside this one
  bool warm = true;         // a compile process is started at once, before a kernel comes
  bool background = false;  // compiles with the processor time that nobody else wants
  std::string rewrite_log;  // a folder (worker/compile/rewrite_log.h); empty: none
  SearchRights rights = {};
  bool names_target = false;    // the process says which device it has, before all else
  std::vector<int> cores = {};  // for compiling; empty: all of this process's
};

// What the environment asks of the service of an executor.
KernelServiceOptions KernelServiceFromEnvironment();

class KernelService {
 public:
  // Errors: UNAVAILABLE  no socket
  static absl::StatusOr<std::unique_ptr<KernelService>> Start(const KernelServiceOptions& options);
  // As Start, and passes the socket to `process` as the first command; nullptr if that fails.
  // tunes: measurements are kept. files: as Serve.
  static std::unique_ptr<KernelService> StartFor(const ChildProcess& process,
                                                 const KernelServiceOptions& options, bool tunes,
                                                 const AccountFiles& files = {});
  ~KernelService();
  KernelService(const KernelService&) = delete;
  KernelService& operator=(const KernelService&) = delete;

  // The process's end of the socket, which then belongs to the caller. Call once.
  int TakeSocket();
  // From now on, objects and measurements are those of these files; before, none are kept. Call
  // before the process may send a kernel of the account.
  void Serve(const AccountFiles& files);
  // From now on, compiles with these cores, and for them.
  void MoveTo(const std::vector<int>& cores);

 private:
  class Impl;
  explicit KernelService(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace outboard::worker
