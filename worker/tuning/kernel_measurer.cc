#include "worker/tuning/kernel_measurer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/copies.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/encoding.h"
#include "compiler/search/compare.h"
#include "runtime/devices.h"
#include "worker/process/message_limits.h"

namespace outboard::worker {
namespace {

// A time is the least of runs that together take about this.
constexpr double kMeasuredSeconds = 0.02;
constexpr int kRunsMax = 20;
// So many runs are made of a kernel even where they take longer, but not beyond so many seconds: of
// what runs for long, what else the machine does is a small part.
constexpr int kRunsMin = 3;
constexpr double kLongSeconds = 0.2;
// What a first task or run, with cold caches, must be above the limit to be given up on.
constexpr double kColdFactor = 1.5;
// Twice what the device says that its last cache has; where it says nothing, twice that of an H100
// (50 MiB). A small device gives a part of its memory.
constexpr int64_t kCacheBytes = int64_t{50} << 20;
constexpr int64_t kCacheTimes = 2, kCacheShare = 8;
// A candidate that takes so much longer than what it has to beat, and this beside, has a loop
// without an end. What is only slow, such as threads in the place of a matrix unit, is a hundred
// times slower at most: it is waited for, since a process that ends takes its session along. So is
// a GPU that somebody else keeps busy, or a driver that pauses, for a second or two.
constexpr double kEndlessFactor = 200, kEndlessSeconds = 5;

// When a candidate that has to beat `most_seconds` is no longer waited for: never later than any
// other launch.
std::chrono::milliseconds EndlessAfter(const LaunchWatch* watch, double most_seconds) {
  if (watch == nullptr) return {};
  const double seconds = kEndlessSeconds + kEndlessFactor * most_seconds;
  const double bound = std::chrono::duration<double>(watch->bound()).count();
  return std::chrono::milliseconds(static_cast<int64_t>(std::min(seconds, bound) * 1e3));
}

}  // namespace

KernelMeasurer::KernelMeasurer(std::string encoding, KernelCompiler* compiler,
                               runtime::Device* device, const MeasurerOptions& options)
    : encoding_(std::move(encoding)), compiler_(compiler), device_(device), options_(options) {
  Graph graph;
  const absl::StatusOr<const UOp*> sink = DecodeGraph(graph, encoding_, Level::kKernel);
  if (!sink.ok()) return;  // nothing of it will compile
  copies_ = CopiesOf(*sink);
  for (const UOp* node : PostOrder(*sink)) {
    if (node->op != Op::kGlobal && node->op != Op::kStore) continue;
    const UOp* const global = node->op == Op::kStore ? node->src[0]->src[0] : node;
    const auto slot = static_cast<size_t>(GlobalOf(global).slot());
    if (slots_.size() <= slot) slots_.resize(slot + 1);
    slots_[slot].bytes = GlobalOf(global).elements() * ByteWidth(global->dtype);
    if (node->op == Op::kStore) slots_[slot].written = true;
  }
}

absl::StatusOr<std::vector<runtime::DeviceAddress>> KernelMeasurer::OnDevice(
    std::span<void* const> buffers) {
  const auto copies = static_cast<size_t>(copies_);
  std::vector<runtime::DeviceAddress> addresses(copies * buffers.size());
  for (size_t i = 0; i < buffers.size() && i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (const auto direct = device_->AddressOfHost(buffers[i], slot.bytes); direct && copies == 1) {
      addresses[i] = *direct;
      continue;
    }
    const std::string_view bytes(static_cast<const char*>(buffers[i]),
                                 static_cast<size_t>(slot.bytes));
    for (size_t copy = 0; copy < copies; ++copy) {
      const bool fresh = slot.memory.size() == copy;
      if (fresh) {
        OB_ASSIGN_OR_RETURN(runtime::DeviceBuffer memory, device_->Allocate(slot.bytes));
        slot.memory.push_back(std::move(memory));
      }
      const runtime::DeviceAddress address = slot.memory[copy].address();
      addresses[copy * buffers.size() + i] = address;
      if (fresh || (slot.written && expected_results_.empty()))
        OB_RETURN_IF_ERROR(device_->Upload(address, bytes));
    }
  }
  OB_RETURN_IF_ERROR(Restore());
  return addresses;
}

std::vector<runtime::DeviceAddress> KernelMeasurer::Addresses() const {
  std::vector<runtime::DeviceAddress> addresses;
  for (size_t copy = 0; copy < static_cast<size_t>(copies_); ++copy)
    for (const Slot& slot : slots_) addresses.push_back(slot.memory[copy].address());
  return addresses;
}

absl::StatusOr<std::vector<KernelMeasurer::Expected>> KernelMeasurer::CopyExpected(
    std::span<const search::ExpectedSlot> slots) {
  std::vector<KernelSource> sources;
  for (const search::ExpectedSlot& slot : slots) {
    Graph graph;
    OB_ASSIGN_OR_RETURN(
        EncodedGraph encoded,
        EncodeGraph(search::DifferencesKernel(graph, slot.dtype, slot.elements)));
    sources.push_back({std::move(encoded.bytes), std::nullopt});
  }
  std::vector<absl::StatusOr<CompiledKernel>> compiled = compiler_->Compile(sources);
  const auto copied = [&](const void* from,
                          int64_t bytes) -> absl::StatusOr<runtime::DeviceBuffer> {
    OB_ASSIGN_OR_RETURN(runtime::DeviceBuffer memory, device_->Allocate(bytes));
    OB_RETURN_IF_ERROR(device_->Upload(
        memory.address(), {static_cast<const char*>(from), static_cast<size_t>(bytes)}));
    return memory;
  };
  std::vector<Expected> all;
  for (size_t i = 0; i < slots.size(); ++i) {
    const search::ExpectedSlot& slot = slots[i];
    const int64_t bytes = slot.elements * ByteWidth(slot.dtype);
    OB_RETURN_IF_ERROR(compiled[i].status());
    OB_ASSIGN_OR_RETURN(std::unique_ptr<runtime::DeviceKernel> differences,
                        device_->Load(*compiled[i]));
    OB_ASSIGN_OR_RETURN(runtime::DeviceBuffer after, copied(slot.after, bytes));
    Expected expected{.slot = slot.slot,
                      .elements = slot.elements,
                      .unwritten = static_cast<unsigned char>(search::UnwrittenByte(slot.dtype)),
                      .before = std::nullopt,
                      .after = std::move(after),
                      .differences = std::move(differences)};
    if (slot.before != nullptr) {
      OB_ASSIGN_OR_RETURN(runtime::DeviceBuffer before, copied(slot.before, bytes));
      expected.before.emplace(std::move(before));
    }
    all.push_back(std::move(expected));
  }
  return all;
}

absl::Status KernelMeasurer::KeepExpected(std::span<const search::ExpectedSlot> slots) {
  if (device_->properties().is_processor)
    return absl::UnimplementedError("a processor's memory is the host's");
  for (const Slot& slot : slots_)
    if (slot.memory.size() != static_cast<size_t>(copies_))
      return absl::UnimplementedError("the device computes in the host's memory");
  int64_t needed = 0;
  for (const search::ExpectedSlot& slot : slots)
    needed += slot.elements * ByteWidth(slot.dtype) * (slot.before == nullptr ? 1 : 2);
  if (needed > options_.expected_bytes_max)
    return absl::ResourceExhaustedError(
        absl::StrCat("results of ", needed, " bytes; the limit is ", options_.expected_bytes_max));
  OB_ASSIGN_OR_RETURN(runtime::DeviceBuffer counts,
                      device_->Allocate(search::kDifferenceCounts * sizeof(int32_t)));
  OB_ASSIGN_OR_RETURN(std::vector<Expected> all, CopyExpected(slots));
  counts_.emplace(std::move(counts));
  expected_results_ = std::move(all);
  return absl::OkStatus();
}

absl::Status KernelMeasurer::Restore() {
  for (const Expected& expected : expected_results_) {
    if (!expected.before.has_value()) continue;
    for (const runtime::DeviceBuffer& memory : slots_[expected.slot].memory)
      OB_RETURN_IF_ERROR(
          device_->Copy(memory.address(), expected.before->address(), memory.bytes()));
  }
  return absl::OkStatus();
}

absl::Status KernelMeasurer::Compare(const CompiledKernel& kernel) {
  OB_CHECK(!expected_results_.empty());
  OB_ASSIGN_OR_RETURN(const runtime::DeviceKernel* const loaded, Loaded(kernel));
  OB_RETURN_IF_ERROR(Restore());
  for (const Expected& expected : expected_results_)
    for (const runtime::DeviceBuffer& memory : slots_[expected.slot].memory)
      if (!expected.before.has_value())
        OB_RETURN_IF_ERROR(device_->Fill(memory.address(), expected.unwritten, memory.bytes()));
  const WatchedWait wait(options_.watch, candidate_, LongestOf(options_.watch, 0));
  OB_RETURN_IF_ERROR(device_->Launch(*loaded, Addresses(), {}));
  std::vector<int32_t> counts(search::kDifferenceCounts);
  for (const Expected& expected : expected_results_) {
    const std::vector<runtime::DeviceBuffer>& copies = slots_[expected.slot].memory;
    for (size_t copy = 0; copy < copies.size(); ++copy) {
      const runtime::DeviceAddress buffers[] = {counts_->address(), copies[copy].address(),
                                                expected.after.address()};
      OB_RETURN_IF_ERROR(device_->Launch(*expected.differences, buffers, {}));
      OB_RETURN_IF_ERROR(device_->Download(counts_->address(), counts_->bytes(), counts.data()));
      OB_RETURN_IF_ERROR(device_->Synchronize());
      if (const int64_t wrong = std::accumulate(counts.begin(), counts.end(), int64_t{0});
          wrong != 0)
        return absl::DataLossError(absl::StrCat(wrong, " of ", expected.elements,
                                                " elements of copy ", copy, " of slot ",
                                                expected.slot, " differ"));
    }
  }
  return absl::OkStatus();
}

absl::Status KernelMeasurer::ToHost(std::span<void* const> buffers) {
  std::string other;
  for (size_t i = 0; i < buffers.size() && i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    for (size_t copy = 0; slot.written && copy < slot.memory.size(); ++copy) {
      if (copy > 0) other.resize(static_cast<size_t>(slot.bytes));
      void* const to = copy == 0 ? buffers[i] : other.data();
      OB_RETURN_IF_ERROR(device_->Download(slot.memory[copy].address(), slot.bytes, to));
      if (copy > 0 && std::memcmp(other.data(), buffers[i], other.size()) != 0)
        return absl::DataLossError(
            absl::StrCat("copy ", copy, " of slot ", i, " is not what the first one is"));
    }
  }
  return device_->Synchronize();
}

absl::StatusOr<const runtime::DeviceKernel*> KernelMeasurer::Loaded(const CompiledKernel& kernel) {
  if (loaded_ != nullptr && kernel.object == loaded_from_.object &&
      kernel.blocks == loaded_from_.blocks && kernel.threads == loaded_from_.threads &&
      kernel.shared_bytes == loaded_from_.shared_bytes && kernel.maps == loaded_from_.maps &&
      kernel.tasks == loaded_from_.tasks)
    return loaded_.get();
  loaded_.reset();
  OB_ASSIGN_OR_RETURN(loaded_, device_->Load(kernel));
  loaded_from_ = kernel;
  return loaded_.get();
}

absl::StatusOr<double> KernelMeasurer::Time(const runtime::DeviceKernel& kernel,
                                            std::span<const runtime::DeviceAddress> addresses,
                                            int64_t tasks, double most_seconds) {
  const WatchedWait wait(options_.watch, candidate_, EndlessAfter(options_.watch, most_seconds));
  return device_->Time([&] {
    return tasks == kernel.tasks() ? device_->Launch(kernel, addresses, {})
                                   : device_->LaunchTasks(kernel, addresses, {}, 0, tasks);
  });
}

absl::Status KernelMeasurer::Open() {
  if (!options_.cold_caches) return absl::OkStatus();
  const int64_t memory = device_->properties().memory_bytes;  // 0: the host's
  const int64_t cache = device_->properties().cache_bytes;
  const int64_t bytes = kCacheTimes * (cache > 0 ? cache : kCacheBytes);
  OB_ASSIGN_OR_RETURN(
      runtime::DeviceBuffer scratch,
      device_->Allocate(memory > 0 ? std::min(bytes, memory / kCacheShare) : bytes));
  scratch_.emplace(std::move(scratch));
  return absl::OkStatus();
}

void KernelMeasurer::ReadConditions() {
  conditions_ = {};
  if (!conditions_status_.ok()) return;
  const absl::StatusOr<runtime::DeviceState> state = device_->ReadState();
  conditions_status_ = state.status();
  if (state.ok())
    conditions_ = {.clock_mhz = state->clock_mhz,
                   .power_mw = state->power_mw,
                   .celsius = state->celsius};
}

absl::Status KernelMeasurer::ColdCaches() {
  return scratch_.has_value() ? device_->Fill(scratch_->address(), 0, scratch_->bytes())
                              : absl::OkStatus();
}

void KernelMeasurer::Expect(std::span<const std::vector<codegen::Opt>> candidates) {
  expected_.clear();
  ready_.clear();
  for (const std::vector<codegen::Opt>& opts : candidates)
    expected_.push_back(codegen::OptsToString(opts));
}

absl::StatusOr<CompiledKernel> KernelMeasurer::Compile(const std::vector<codegen::Opt>& opts) {
  const std::string wanted = codegen::OptsToString(opts);
  if (!ready_.contains(wanted)) {
    std::vector<KernelSource> batch{{encoding_, wanted}};
    while (!expected_.empty() && batch.size() < static_cast<size_t>(options_.batch)) {
      if (expected_.front() != wanted) batch.push_back({encoding_, expected_.front()});
      expected_.pop_front();
    }
    std::vector<absl::StatusOr<CompiledKernel>> compiled = compiler_->Compile(batch);
    for (size_t i = 0; i < batch.size(); ++i)
      ready_.insert_or_assign(*batch[i].opts, std::move(compiled[i]));
  }
  candidate_ = absl::StrCat("a candidate of a search, ", wanted);
  return std::move(ready_.extract(wanted).mapped());
}

absl::Status KernelMeasurer::Run(const CompiledKernel& kernel, std::span<void* const> buffers,
                                 int64_t task_begin, int64_t task_end) {
  // Where tasks cannot be chosen, the first of several parts is all of them.
  if (!device_->properties().cuts_tasks && task_begin > 0) return absl::OkStatus();
  OB_ASSIGN_OR_RETURN(const runtime::DeviceKernel* const loaded, Loaded(kernel));
  OB_ASSIGN_OR_RETURN(const std::vector<runtime::DeviceAddress> addresses, OnDevice(buffers));
  const WatchedWait wait(options_.watch, candidate_, LongestOf(options_.watch, 0));
  OB_RETURN_IF_ERROR(device_->LaunchTasks(*loaded, addresses, {}, task_begin, task_end));
  return ToHost(buffers);
}

absl::StatusOr<double> KernelMeasurer::Seconds(const CompiledKernel& kernel,
                                               std::span<void* const> buffers,
                                               double most_seconds) {
  OB_ASSIGN_OR_RETURN(const runtime::DeviceKernel* const loaded, Loaded(kernel));
  OB_ASSIGN_OR_RETURN(const std::vector<runtime::DeviceAddress> addresses, OnDevice(buffers));
  const int threads = device_->properties().compute_units;
  if (device_->properties().cuts_tasks && kernel.tasks >= 4 * threads) {
    // One of many tasks: a share of the work, without the others' threads.
    OB_ASSIGN_OR_RETURN(const double one, Time(*loaded, addresses, 1, most_seconds));
    const double whole = one * static_cast<double>(kernel.tasks) / threads;
    if (whole > 2 * kColdFactor * most_seconds) return whole;
  }
  double least = 0, total = 0;
  for (int run = 0; run < kRunsMax; ++run) {
    if (total >= kMeasuredSeconds && (run >= kRunsMin || total >= kLongSeconds)) break;
    OB_RETURN_IF_ERROR(ColdCaches());
    OB_ASSIGN_OR_RETURN(const double seconds, Time(*loaded, addresses, kernel.tasks, most_seconds));
    total += seconds;
    least = run == 0 ? seconds : std::min(least, seconds);
    if (least > (run == 0 ? kColdFactor : 1) * most_seconds) break;
  }
  ReadConditions();
  return least;
}

}  // namespace outboard::worker
