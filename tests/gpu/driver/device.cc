#include "tests/gpu/driver/device.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace outboard::fake_cuda {
namespace {
// The wait of an endless kernel, and the pause between two looks at a queue in which nothing is
// ready.
constexpr std::chrono::milliseconds kPause(1);

// What work costs on the device's clock: the same in every run, so that what is timed by events can
// be told apart by what it does. A launch, an instruction of a warp, 32 bytes of global memory, and
// bytes over the bus.
constexpr double kLaunchUs = 2, kInstructionUs = 1e-3, kSectorUs = 2e-3, kBusByteUs = 1e-4;

uint64_t MemoryBytes() {
  const char* mib = std::getenv("OUTBOARD_FAKE_CUDA_MIB");
  return (mib != nullptr ? std::strtoull(mib, nullptr, 10) : 512) << 20;
}
ptx::MachineOptions Options() {
  ptx::MachineOptions options;
  if (const char* seed = std::getenv("OUTBOARD_FAKE_CUDA_SEED"))
    options.seed = std::strtoull(seed, nullptr, 10);
  if (const char* runs = std::getenv("OUTBOARD_FAKE_CUDA_RUNS"))
    options.runs = std::max(1, std::atoi(runs));
  if (const char* most = std::getenv("OUTBOARD_FAKE_CUDA_INSTRUCTIONS"))
    options.warp_instructions_max = std::strtoull(most, nullptr, 10);
  options.keeps_leftovers = std::getenv("OUTBOARD_FAKE_CUDA_AA") != nullptr;
  return options;
}
}  // namespace

FakeDevice& FakeDevice::Get() {
  // Never destroyed: its thread may be in an endless kernel when the program ends.
  static FakeDevice* device = new FakeDevice;
  return *device;
}

FakeDevice::FakeDevice()
    : random_(Options().seed),
      memory_(MemoryBytes()),
      machine_(&memory_, Options()) {
  if (const char* delay = std::getenv("OUTBOARD_FAKE_CUDA_DELAY_US")) delay_us_ = std::atoi(delay);
  arch_ = arch_of(0);
  if (const char* version = std::getenv("OUTBOARD_FAKE_CUDA_VERSION"))
    driver_version_ = std::atoi(version);
  fill_aa_ = std::getenv("OUTBOARD_FAKE_CUDA_AA") != nullptr;
  if (std::getenv("OUTBOARD_FAKE_CUDA_LEFTOVERS") != nullptr)
    leftovers_ = std::make_unique<Leftovers>(memory_.capacity());
  if (const char* path = std::getenv("OUTBOARD_FAKE_CUDA_REPORTS"))
    report_file_ = OpenReports(path);
  if (const char* path = std::getenv("OUTBOARD_FAKE_CUDA_NOTES")) note_file_ = OpenReports(path);
  if (const char* faults = std::getenv("OUTBOARD_FAKE_CUDA_FAULTS")) ParseFaults(faults);
  if (const char* path = std::getenv("OUTBOARD_FAKE_CUDA_FAULTS_LEFT")) MapFaultsLeft(path);
  streams_.push_back(std::make_unique<FakeStream>());
  std::thread([this] { Loop(); }).detach();
}

FakeStream* FakeDevice::AddStream(bool non_blocking) {
  std::lock_guard<std::mutex> lock(mutex_);
  streams_.push_back(std::make_unique<FakeStream>());
  streams_.back()->non_blocking = non_blocking;
  return streams_.back().get();
}

// A destroyed stream still does what was enqueued.
Result FakeDevice::RemoveStream(FakeStream* stream) {
  const Result result = WaitStream(stream);
  std::lock_guard<std::mutex> lock(mutex_);
  if (stream == streams_[0].get()) return kInvalidHandle;
  for (size_t i = 1; i < streams_.size(); ++i)
    if (streams_[i].get() == stream) streams_.erase(streams_.begin() + static_cast<long>(i));
  return result;
}

FakeStream* FakeDevice::StreamOf(void* handle) {
  std::lock_guard<std::mutex> lock(mutex_);
  // 1 and 2 are CUDA's names for the legacy and the thread's default stream.
  if (reinterpret_cast<uintptr_t>(handle) <= 2) return streams_[0].get();
  for (const auto& stream : streams_)
    if (stream.get() == handle) return stream.get();
  return nullptr;
}

bool FakeDevice::IsPinned(const void* host, uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto address = reinterpret_cast<uint64_t>(host);
  auto it = pinned_.upper_bound(address);
  if (it == pinned_.begin()) return false;
  --it;
  return address + bytes <= it->first + it->second;
}

Result FakeDevice::Enqueue(FakeStream* stream, GraphNode work) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (sticky_ != kSuccess) return sticky_;
    if (work.kind == GraphNode::kRecord) {
      if (stream->capture != nullptr) {
        work.event->capture = stream->capture;
        work.event->capture_tail = stream->capture_tail;
        return kSuccess;
      }
      work.event->capture = nullptr;
      work.version = ++work.event->recorded;
    }
    if (work.kind == GraphNode::kWait) {
      if (work.event->capture != nullptr) {
        if (stream->capture != nullptr && stream->capture != work.event->capture)
          return kCaptureUnmatched;
        stream->capture = work.event->capture;
        for (GraphNode* node : work.event->capture_tail) stream->capture_tail.push_back(node);
        return kSuccess;
      }
      if (stream->capture != nullptr) return kSuccess;  // an event from before the capture
      work.version = work.event->recorded;
    }
    if (stream->capture != nullptr) {
      auto node = std::make_unique<GraphNode>(std::move(work));
      node->after = stream->capture_tail;
      stream->capture_tail = {node.get()};
      stream->capture->nodes.push_back(std::move(node));
      return kSuccess;
    }
    host_us_ += call_us_;
    stream->queue.push_back({++sequence_, std::move(work), host_us_});
  }
  work_.notify_all();
  return kSuccess;
}

Result FakeDevice::EndCapture(FakeGraph* graph, const std::vector<GraphNode*>& tail) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::set<const GraphNode*> joined;
  std::vector<const GraphNode*> left(tail.begin(), tail.end());
  while (!left.empty()) {
    const GraphNode* node = left.back();
    left.pop_back();
    if (!joined.insert(node).second) continue;
    left.insert(left.end(), node->after.begin(), node->after.end());
  }
  Result result = kSuccess;
  for (const auto& stream : streams_) {
    if (stream->capture != graph) continue;
    for (const GraphNode* node : stream->capture_tail)
      if (joined.count(node) == 0) result = kCaptureUnjoined;
    stream->capture = nullptr;
    stream->capture_origin = false;
    stream->capture_tail.clear();
  }
  return result;
}

// A stream whose first entry may run now, chosen at random among those.
bool FakeDevice::PickReady(FakeStream** picked) {
  std::vector<FakeStream*> ready;
  uint64_t blocking_first = ~uint64_t{0};
  for (size_t i = 1; i < streams_.size(); ++i)
    if (!streams_[i]->non_blocking && !streams_[i]->queue.empty())
      blocking_first = std::min(blocking_first, streams_[i]->queue.front().sequence);
  const auto& legacy = streams_[0]->queue;
  const uint64_t legacy_first = legacy.empty() ? ~uint64_t{0} : legacy.front().sequence;
  for (size_t i = 0; i < streams_.size(); ++i) {
    FakeStream* stream = streams_[i].get();
    if (stream->queue.empty()) continue;
    const FakeStream::Entry& entry = stream->queue.front();
    if (i == 0 && blocking_first < entry.sequence) continue;
    if (i > 0 && !stream->non_blocking && legacy_first < entry.sequence) continue;
    if (entry.work.kind == GraphNode::kWait && entry.work.event->completed < entry.work.version)
      continue;
    ready.push_back(stream);
  }
  if (ready.empty()) return false;
  *picked = ready[random_() % ready.size()];
  return true;
}

void FakeDevice::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    FakeStream* stream = nullptr;
    if (sticky_ != kSuccess || !PickReady(&stream)) {
      work_.wait(lock);
      continue;
    }
    if (waiters_ == 0 && delay_us_ > 0) {
      // Late on purpose: the program goes on, and reads or overwrites what it must not touch yet.
      work_.wait_for(lock, std::chrono::microseconds(delay_us_), [&] { return waiters_ > 0; });
      if (!PickReady(&stream)) continue;
    }
    running_ = stream;
    clock_us_ = std::max(clock_us_, stream->queue.front().queued_us);
    GraphNode work = std::move(stream->queue.front().work);
    lock.unlock();
    const Result result = RunWork(&work);
    lock.lock();
    running_ = nullptr;
    done_us_ = clock_us_;
    stream->queue.pop_front();
    if (work.kind == GraphNode::kRecord) {
      work.event->completed = std::max(work.event->completed, work.version);
      work.event->time_ms = clock_us_ / 1e3;
    }
    if (result != kSuccess && sticky_ == kSuccess) {
      sticky_ = result;
      for (const auto& each : streams_) each->queue.clear();
    }
    done_.notify_all();
  }
}

bool FakeDevice::WaitUntil(const std::function<bool()>& done) {
  std::unique_lock<std::mutex> lock(mutex_);
  ++waiters_;
  work_.notify_all();
  while (sticky_ == kSuccess && !done()) done_.wait_for(lock, kPause * 20);
  --waiters_;
  host_us_ = std::max(host_us_, done_us_);
  return sticky_ == kSuccess;
}
Result FakeDevice::WaitStream(FakeStream* stream) {
  return WaitUntil([&] { return stream->queue.empty(); }) ? kSuccess : sticky();
}
Result FakeDevice::WaitEvent(FakeEvent* event) {
  const uint64_t version = event->recorded;
  return WaitUntil([&] { return event->completed >= version; }) ? kSuccess : sticky();
}
Result FakeDevice::WaitAll() {
  return WaitUntil([&] {
    for (const auto& stream : streams_)
      if (!stream->queue.empty()) return false;
    return true;
  })
             ? kSuccess
             : sticky();
}
bool FakeDevice::StreamIdle(FakeStream* stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  return stream->queue.empty();
}

Result FakeDevice::RunWork(GraphNode* work) {
  switch (work->kind) {
    case GraphNode::kEmpty:
    case GraphNode::kRecord:
    case GraphNode::kWait: return kSuccess;
    case GraphNode::kKernel: return RunKernel(work);
    case GraphNode::kCopy: return RunCopy(work);
    case GraphNode::kFill: return RunFill(work);
    case GraphNode::kHost: work->host(); return kSuccess;
    case GraphNode::kAllocate: return kSuccess;
    case GraphNode::kFree: {
      std::lock_guard<std::mutex> lock(memory_mutex_);
      return Free(work->target);
    }
    case GraphNode::kGraph:
      for (GraphNode& node : work->nodes) {
        const Result result = RunWork(&node);
        if (result != kSuccess) return result;
      }
      return kSuccess;
  }
  return kUnknown;
}

Result FakeDevice::Free(uint64_t address) {
  if (leftovers_ != nullptr) leftovers_->TakeBack(&memory_, address);
  return memory_.Free(address) ? kSuccess : kInvalidValue;
}

// In code that was compiled to be linked, ptxas ignores setmaxnreg ("to maintain compatibility
// across compilation units") and runs products of warpgroups one by one.
bool FakeDevice::IgnoresInstructions(const FakeFunction& function) {
  if (!function.module->relocatable) return false;
  for (const ptx::Instruction& in : function.code->code) {
    if (in.op != ptx::Op::kSetmaxnreg && in.op != ptx::Op::kWgmma) continue;
    ptx::Report report;
    report.kernel = function.code->name;
    report.line = in.line;
    if (const auto text = function.code->lines.find(in.line); text != function.code->lines.end())
      report.text = text->second;
    report.detail = "relocatable code, as cuLinkAddData makes of PTX, does without";
    Report(report.ToString());
    return true;
  }
  return false;
}

Result FakeDevice::RunKernel(GraphNode* work) {
  const ptx::Function& code = *work->function->code;
  const std::string& name = code.name;
  if (DueAt("ecc", code)) return kEccUncorrectable;
  if (DueAt("sticky", code)) return kIllegalAddress;
  if (DueAt("gone", code)) return kDeviceUnavailable;
  if (DueAt("endless", code))
    while (true) std::this_thread::sleep_for(kPause * 100);
  if (IgnoresInstructions(*work->function)) return kLaunchFailed;
  std::lock_guard<std::mutex> lock(memory_mutex_);
  const size_t before = machine_.reports().size();
  // Blocks of which a multiprocessor holds one run side by side, as many as there are
  // multiprocessors: they may wait for each other.
  const ptx::LaunchConfig& launch = work->launch;
  const uint32_t blocks = launch.grid[0] * launch.grid[1] * launch.grid[2];
  constexpr uint32_t kHalfOfShared = 114 << 10;
  const auto multiprocessors = static_cast<uint32_t>(MultiprocessorsOf(arch_));
  const ptx::Counters counted = machine_.counters();
  const int resident = machine_.options().resident_blocks;
  if (launch.shared_bytes > kHalfOfShared && blocks <= multiprocessors)
    machine_.options().resident_blocks = static_cast<int>(blocks);
  absl::Status status;
  if (DueAt("trap", code))
    status = absl::AbortedError("kernel " + name + " trapped on demand");
  else if (DueAt("timeout", code))
    status = absl::DeadlineExceededError("kernel " + name + " does not end on demand");
  else
    status = machine_.Launch(*work->function->module->loaded, name, work->launch);
  machine_.options().resident_blocks = resident;
  Note("kernel " + name + " blocks " + std::to_string(blocks) + " shared " +
       std::to_string(launch.shared_bytes));
  const ptx::Counters& now = machine_.counters();
  clock_us_ +=
      kLaunchUs +
      kInstructionUs * static_cast<double>(now.warp_instructions - counted.warp_instructions) +
      1e-3 * static_cast<double>(now.slept_ns - counted.slept_ns) +
      kSectorUs * static_cast<double>(now.global_sectors - counted.global_sectors);
  ptx::ReportKind kind = ptx::ReportKind::kMisuse;
  for (size_t i = before; i < machine_.reports().size(); ++i) {
    kind = machine_.reports()[i].kind;
    Report(machine_.reports()[i].ToString());
  }
  machine_.ClearReports();
  if (status.ok()) return kSuccess;
  if (before == machine_.reports().size() && status.code() != absl::StatusCode::kFailedPrecondition)
    Report(std::string(status.message()));
  if (status.code() == absl::StatusCode::kDeadlineExceeded) return kLaunchTimeout;
  if (kind == ptx::ReportKind::kOutOfBounds) return kIllegalAddress;
  if (kind == ptx::ReportKind::kMisaligned) return kMisalignedAddress;
  return kLaunchFailed;
}

Result FakeDevice::RunCopy(GraphNode* work) {
  std::lock_guard<std::mutex> lock(memory_mutex_);
  clock_us_ += kBusByteUs * static_cast<double>(work->bytes);
  bool ok = true;
  if (work->source_host && work->target_host) {
    std::memmove(reinterpret_cast<void*>(work->target), reinterpret_cast<void*>(work->source),
                 work->bytes);
  } else if (work->source_host) {
    const void* from =
        work->staged.empty() ? reinterpret_cast<void*>(work->source) : work->staged.data();
    ok = memory_.Write(work->target, from, work->bytes);
  } else if (work->target_host) {
    ok = memory_.Read(work->source, reinterpret_cast<void*>(work->target), work->bytes);
  } else {
    ok = memory_.Copy(work->target, work->source, work->bytes);
  }
  if (!ok) Report("out-of-bounds: a copy touches bytes that belong to no allocation");
  return ok ? kSuccess : kIllegalAddress;
}

Result FakeDevice::RunFill(GraphNode* work) {
  std::lock_guard<std::mutex> lock(memory_mutex_);
  filled_bytes_ += work->width * static_cast<uint64_t>(work->element_bytes) * work->height;
  const uint64_t row_bytes = work->width * static_cast<uint64_t>(work->element_bytes);
  Note("fill " + std::to_string(row_bytes * work->height) + " value " +
       std::to_string(work->value));
  std::vector<uint8_t> row(work->element_bytes == 1 ? 0 : row_bytes);  // a scrub fills gigabytes
  for (size_t i = 0; i < row.size(); ++i)
    row[i] =
        static_cast<uint8_t>(work->value >> (8 * (i % static_cast<size_t>(work->element_bytes))));
  for (uint64_t y = 0; y < work->height; ++y) {
    const uint64_t to = work->target + y * work->pitch;
    const auto value = static_cast<uint8_t>(work->value);
    if (row.empty() ? memory_.Fill(to, value, row_bytes, /*counts_as_written=*/true)
                    : memory_.Write(to, row.data(), row_bytes))
      continue;
    Report("out-of-bounds: a fill touches bytes that belong to no allocation");
    return kIllegalAddress;
  }
  return kSuccess;
}

}  // namespace outboard::fake_cuda
