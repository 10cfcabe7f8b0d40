// A stand-in for libnccl.so.2, loaded as that is: ranks are threads of one process, device memory
// is the host's, and a stream counts what is queued on it. The tests reach the functions below by
// dlsym.
#pragma once

#include <cstdint>
#include <set>

namespace outboard::test {

// What `stream` of ncclSend and ncclRecv points to. Used under a lock of the library's.
struct FakeStream {
  uint64_t queued = 0;
  std::set<uint64_t> open;  // numbers of what is queued and not done
};

struct FakeNccl {
  uint64_t (*mark)(FakeStream* stream);
  bool (*is_done)(FakeStream* stream, uint64_t mark);
  // From now on: nothing that is queued is ever done.
  void (*hang)(bool on);
  // ncclCommGetAsyncError of this rank says so, in every communicator; 0: no more.
  void (*fail)(int rank, int result);
  void (*set_version)(int version);
  int (*communicators)();  // that are not aborted
};

}  // namespace outboard::test
