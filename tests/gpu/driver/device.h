// The fake device: one context's memory, streams that run late, and the faults that a test asks
// for.
//
// Invariants:
//  1. Work runs on one thread, in order within a stream and in a seeded order among streams.
//  2. Work starts when somebody waits for it, or after the delay: an enqueued call has done
//     nothing when it returns.
//  3. After a sticky error nothing runs, and every call that needs the device returns that error.
//  4. Events tell a time that follows from what was run, not from how long that took here.
//  5. The legacy stream (handle 0) and blocking streams wait for each other as in CUDA.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "tests/gpu/driver/leftovers.h"
#include "tests/gpu/driver/types.h"
#include "tests/gpu/ptx/machine.h"

namespace outboard::fake_cuda {

struct FakeModule {
  std::unique_ptr<ptx::LoadedModule> loaded;
  bool relocatable = false;  // made by the linker: setmaxnreg is ignored, wgmma is serialised
  std::map<std::string, std::unique_ptr<struct FakeFunction>> functions;
};
struct FakeFunction {
  FakeModule* module = nullptr;
  const ptx::Function* code = nullptr;
  int dynamic_shared_max = 48 * 1024;
};

struct FakeEvent {
  uint64_t recorded = 0;  // versions
  uint64_t completed = 0;
  double time_ms = 0;
  bool timed = true;
  // While a capture has recorded it.
  struct FakeGraph* capture = nullptr;
  std::vector<struct GraphNode*> capture_tail;
};

// One piece of work: an entry of a stream or a node of a graph.
struct GraphNode {
  enum Kind : uint8_t {
    kEmpty,
    kKernel,
    kCopy,
    kFill,
    kHost,
    kRecord,
    kWait,
    kGraph,
    kAllocate,
    kFree
  };
  Kind kind = kEmpty;
  FakeFunction* function = nullptr;
  ptx::LaunchConfig launch;
  uint64_t target = 0, source = 0;  // device addresses, or host pointers as the flags say
  bool target_host = false, source_host = false;
  uint64_t bytes = 0;
  std::vector<uint8_t> staged;  // of pageable memory
  uint32_t value = 0;
  int element_bytes = 1;
  uint64_t pitch = 0, width = 0, height = 1;
  std::function<void()> host;
  FakeEvent* event = nullptr;
  uint64_t version = 0;
  std::vector<GraphNode> nodes;   // kGraph: in an order that may run
  std::vector<GraphNode*> after;  // in a graph: nodes that come first
};

struct FakeGraph {
  std::vector<std::unique_ptr<GraphNode>> nodes;
};
struct FakeGraphExec {
  std::vector<GraphNode> nodes;                 // copies, dependencies not used
  std::map<const GraphNode*, size_t> position;  // by the original node
  std::vector<std::vector<size_t>> after;
};

struct FakeStream {
  struct Entry {
    uint64_t sequence = 0;
    GraphNode work;
    double queued_us = 0;  // by the host's clock
  };
  std::deque<Entry> queue;
  bool non_blocking = false;
  FakeGraph* capture = nullptr;
  bool capture_origin = false;
  std::vector<GraphNode*> capture_tail;
};

class FakeDevice {
 public:
  static FakeDevice& Get();

  // Enqueues, or adds to the graph that the stream is capturing.
  Result Enqueue(FakeStream* stream, GraphNode work);
  Result WaitStream(FakeStream* stream);
  Result WaitEvent(FakeEvent* event);
  Result WaitAll();
  bool StreamIdle(FakeStream* stream);

  // So long takes a call that queues work, by the device's clock: work does not start before it.
  void SetCallUs(int us) {
    std::lock_guard<std::mutex> lock(mutex_);
    call_us_ = us;
  }

  // The error that every call returns from now on, or kSuccess.
  Result sticky() {
    std::lock_guard<std::mutex> lock(mutex_);
    return sticky_;
  }

  FakeStream* StreamOf(void* handle);  // nullptr: no such stream
  template <class T>
  T* Own(std::unique_ptr<T> object) {
    std::lock_guard<std::mutex> lock(mutex_);
    handles_.insert(object.get());
    return object.release();
  }
  template <class T>
  bool Owns(T* handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    return handles_.count(handle) != 0;
  }
  template <class T>
  bool Drop(T* handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (handles_.erase(handle) == 0) return false;
    graveyard_.push_back(std::shared_ptr<void>(handle, [](void* p) { delete static_cast<T*>(p); }));
    return true;
  }
  FakeStream* AddStream(bool non_blocking);
  Result RemoveStream(FakeStream* stream);

  // Memory and module loads are serialised with running kernels.
  std::mutex& memory_mutex() { return memory_mutex_; }
  ptx::DeviceMemory& memory() { return memory_; }
  ptx::Machine& machine() { return machine_; }
  Leftovers* leftovers() { return leftovers_.get(); }  // nullptr: new memory holds 0xAA
  Result Free(uint64_t address);                       // under memory_mutex()
  std::map<uint64_t, uint64_t>& pinned() { return pinned_; }  // host ranges, under mutex()
  std::mutex& mutex() { return mutex_; }
  // Ends a capture in all its streams; kCaptureUnjoined if one of them ends in a node that `tail`
  // does not follow.
  Result EndCapture(FakeGraph* graph, const std::vector<GraphNode*>& tail);
  bool IsPinned(const void* host, uint64_t bytes);

  // ---- faults and reports (faults.cc)
  // Counts an occasion ("alloc", "launch", ...) and says whether the fault of that name is due.
  bool Due(const std::string& name);
  // Likewise of "alloc": with OUTBOARD_FAKE_CUDA_FAULT_BYTES allocations of so many bytes are
  // occasions; without it all.
  bool AllocationDue(size_t bytes);
  // Likewise, for a kernel: launches of those with OUTBOARD_FAKE_CUDA_FAULT_PARAMETERS parameters
  // are occasions; without it all. Where faults are counted (MapFaultsLeft) the kernel that wipes a
  // GPU is none, and nor is any kernel while no fault is left. Notes what it does to it.
  bool DueAt(const std::string& name, const ptx::Function& kernel);
  // The machine's device of that number is the one that runs, and modules are for its
  // architecture. Faults are of one device, if OUTBOARD_FAKE_CUDA_FAULT_DEVICE names it.
  void Use(int ordinal);
  bool SetFault(const std::string& name, int nth);
  void Report(const std::string& text);
  // A line of the file OUTBOARD_FAKE_CUDA_NOTES, behind this process's number: what has run, in the
  // order in which it did.
  void Note(const std::string& text) const;
  std::vector<std::string> TakeReports(bool clear);
  void CountLink() { ++links_; }
  uint64_t links() const { return links_; }
  uint64_t filled_bytes() const { return filled_bytes_; }
  bool fill_aa() const { return fill_aa_; }
  // Of the device that runs, and of one of the machine's.
  int arch() const { return arch_; }
  int arch_of(int ordinal) const;
  static int MultiprocessorsOf(int arch);
  int driver_version() const { return driver_version_; }

 private:
  FakeDevice();
  static int OpenReports(const char* path);
  void ParseFaults(const char* text);
  // The first byte of this file, which processes map, says how many faults of kernels they may
  // still have, all together: a test allows one while they run.
  void MapFaultsLeft(const char* path);
  void Loop();
  bool PickReady(FakeStream** stream);
  Result RunWork(GraphNode* work);
  Result RunKernel(GraphNode* work);
  bool IgnoresInstructions(const FakeFunction& function);  // and reports the first of them
  Result RunCopy(GraphNode* work);
  Result RunFill(GraphNode* work);
  bool WaitUntil(const std::function<bool()>& done);

  std::mutex mutex_;
  std::condition_variable work_, done_;
  int waiters_ = 0;
  uint64_t sequence_ = 0;
  Result sticky_ = kSuccess;
  std::vector<std::unique_ptr<FakeStream>> streams_;  // [0] is the legacy stream
  FakeStream* running_ = nullptr;
  std::unordered_set<void*> handles_;
  std::vector<std::shared_ptr<void>>
      graveyard_;  // late work may still name what the program has destroyed
  std::map<uint64_t, uint64_t> pinned_;
  std::mt19937_64 random_;
  double clock_us_ = 0;  // of events; of the thread that runs work
  // The host's clock: it goes on with each call, and with what the host has waited for.
  double host_us_ = 0, call_us_ = 0;
  double done_us_ = 0;  // clock_us_, when the last work was done
  int delay_us_ = 200;

  std::mutex memory_mutex_;
  ptx::DeviceMemory memory_;
  ptx::Machine machine_;
  std::unique_ptr<Leftovers> leftovers_;

  std::mutex fault_mutex_;
  std::map<std::string, int> faults_;  // occasions left until it happens
  std::atomic<uint8_t>* faults_left_ = nullptr;  // nullptr: they are not counted
  std::vector<std::string> reports_;
  int report_file_ = -1, note_file_ = -1;
  std::atomic<uint64_t> links_{0}, filled_bytes_{0};
  bool fill_aa_ = false;
  std::atomic<int> arch_{90};
  int driver_version_ = 12040;
};

}  // namespace outboard::fake_cuda
