// The kernels of a process that runs tenants' code: its compilers and its tuning store, which are
// its supervisor's (kernel_service.h). Each call is a request over the process's kernel socket, and
// waits for the reply.
//
// Errors, besides those of KernelCompiler and TuningStore: UNAVAILABLE  the supervisor has closed
// the socket. Threads: one, which also uses what the accessors return.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "compiler/target.h"
#include "runtime/device.h"
#include "worker/compile/kernel_compiler.h"
#include "worker/tuning/tuning_store.h"

namespace outboard::worker {

class KernelClient {
 public:
  // Takes ownership of `socket`. Compilations of idle_compiler() are given up, with CANCELLED, when
  // `preempt_fd` becomes readable; -1: never.
  KernelClient(int socket, Target target, int preempt_fd);
  ~KernelClient();
  KernelClient(const KernelClient&) = delete;
  KernelClient& operator=(const KernelClient&) = delete;

  KernelCompiler* compiler();       // for a step: cached, batched
  KernelCompiler* candidates();     // for a search: as many at a time as there are processors
  KernelCompiler* idle_compiler();  // for idle time: preempted
  TuningStore* store();
  // What a driver has linked for this account, in its files.
  runtime::LinkedCodeStore* linked();

  // Adds lines to this process's log of rewrites. False: it is full, or cannot be written.
  bool AppendRewrites(std::string_view lines);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace outboard::worker
