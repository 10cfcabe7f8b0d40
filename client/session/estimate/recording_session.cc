#include "client/session/estimate/recording_session.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "client/session/estimate/device_class.h"
#include "client/session/estimate/run_log.h"
#include "compiler/ir/encoding.h"

namespace outboard {
namespace session {

namespace {

using Clock = std::chrono::steady_clock;

template <typename Number>
std::optional<Number> NumberIn(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  Number number = 0;
  const char* const end = text + std::strlen(text);
  if (std::from_chars(text, end, number).ptr != end) return std::nullopt;
  return number;
}

// -1: nobody reads. A program's own children must not write there.
int PipeOf(const char* variable) {
  const std::optional<int> number = NumberIn<int>(variable);
  if (!number.has_value() || *number < 0 || fcntl(*number, F_SETFD, FD_CLOEXEC) != 0) return -1;
  return *number;
}
int Pipe() {
  static const int fd = PipeOf("OUTBOARD_ESTIMATE_FD");
  return fd;
}
int MeasurePipe() {
  static const int fd = PipeOf("OUTBOARD_MEASURE_FD");
  return fd;
}

// `outboard estimate` reads to the end, so nobody writes to a pipe without a reader.
void WriteTo(int fd, const std::string& text) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  for (size_t at = 0; at < text.size();) {
    const ssize_t count = write(fd, text.data() + at, text.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // the reader has gone
    at += static_cast<size_t>(count);
  }
}

absl::Status NotRecorded(const char* what) {
  return absl::UnimplementedError(
      absl::StrCat(what, ": an estimate records steps without a device or a store"));
}

struct Value {
  DType dtype = DType::kVoid;
  std::vector<int64_t> dims;
};

HostTensor MadeUp(const Value& value) {
  HostTensor tensor{.dtype = value.dtype, .dims = value.dims};
  uint64_t count = 1;
  for (const int64_t dim : value.dims) count *= static_cast<uint64_t>(std::max<int64_t>(0, dim));
  const auto width = static_cast<size_t>(ByteWidth(value.dtype));
  std::string one(width, '\0');
  // The number 1 of a float of any width, in the order of this machine's bytes.
  switch (value.dtype) {
    case DType::kF32: one = std::string("\x00\x00\x80\x3f", 4); break;
    case DType::kF64: one = std::string("\x00\x00\x00\x00\x00\x00\xf0\x3f", 8); break;
    case DType::kF16: one = std::string("\x00\x3c", 2); break;
    case DType::kBF16: one = std::string("\x80\x3f", 2); break;
    default: break;
  }
  tensor.bytes.reserve(count * width);
  for (uint64_t i = 0; i < count; ++i) tensor.bytes += one;
  return tensor;
}

class RecordingSession final : public Session, public Estimated {
 public:
  explicit RecordingSession(SessionOptions options)
      : options_(std::move(options)),
        steps_max_(NumberIn<uint64_t>("OUTBOARD_ESTIMATE_STEPS").value_or(0)),
        number_(++last_number) {}
  ~RecordingSession() override { Tell(); }

  uint64_t NewHandle() override { return ++last_handle_; }
  absl::Status Put(uint64_t handle, DType dtype, std::span<const int64_t> dims,
                   std::string_view bytes) override {
    bytes_ += bytes.size();
    return Define(handle, dtype, dims);
  }
  absl::Status PutBlob(uint64_t handle, DType dtype, std::span<const int64_t> dims, uint64_t,
                       std::string_view) override {
    return Define(handle, dtype, dims);
  }
  absl::StatusOr<wire::Uploaded> Upload(std::span<const wire::BlobSource> sources) override {
    for (const wire::BlobSource& source : sources) bytes_ += source.size_bytes;
    wire::Uploaded uploaded;
    uploaded.names.resize(sources.size());
    return uploaded;
  }
  absl::Status AwaitWindow() override { return status(); }

  absl::StatusOr<uint64_t> Run(const RunRequest& request) override {
    OB_RETURN_IF_ERROR(status());
    const Clock::time_point now = Clock::now();
    uint64_t seq = 0;
    {
      const std::lock_guard lock(mutex_);
      OB_ASSIGN_OR_RETURN(const std::vector<Value> results, ResultsOf(request));
      for (size_t i = 0; i < std::min(results.size(), request.outputs.size()); ++i)
        values_[request.outputs[i]] = results[i];
      for (const uint32_t of : request.stack)
        if (of < request.outputs.size())
          values_[request.outputs[of]].dims.insert(values_[request.outputs[of]].dims.begin(),
                                                   request.repeat);
      for (const uint32_t of : request.donate)
        if (of < request.inputs.size()) values_.erase(request.inputs[of]);
      ++runs_;
      seq = ++last_seq_;
      // Awaited by their index in `outputs`.
      for (const uint32_t of : request.fetch)
        if (of < request.outputs.size()) fetched_[{seq, of}] = values_[request.outputs[of]];
    }
    log_.NoteRun(request, now);
    own_ns_ += (Clock::now() - now).count();
    if (steps_max_ > 0 && log_.steps() >= steps_max_) {
      done_ = true;
      Tell();
    } else if (Pipe() >= 0 && now >= tell_at_.load()) {
      const Clock::time_point begin = Clock::now();
      Tell();
      const Clock::time_point end = Clock::now();
      own_ns_ += (end - begin).count();
      tell_at_ = end + std::max<Clock::duration>(std::chrono::seconds(1), 10 * (end - begin));
    }
    return seq;
  }

  absl::StatusOr<uint64_t> Fetch(std::span<const uint64_t> handles) override {
    OB_RETURN_IF_ERROR(status());
    const std::lock_guard lock(mutex_);
    const uint64_t seq = ++last_seq_;
    for (uint32_t i = 0; i < handles.size(); ++i) fetched_[{seq, i}] = values_[handles[i]];
    return seq;
  }
  absl::StatusOr<uint64_t> Save(std::string_view, std::span<const SaveEntry>) override {
    return ++last_seq_;
  }
  absl::StatusOr<Saved> AwaitSaved(uint64_t) override { return Saved{}; }
  absl::StatusOr<std::vector<StoredArray>> Stored(const std::string& name) override {
    return NotRecorded(name.c_str());
  }
  absl::Status Keep(std::span<const KeepEntry>) override { return absl::OkStatus(); }
  void Release(uint64_t handle) override {
    const std::lock_guard lock(mutex_);
    values_.erase(handle);
  }
  absl::StatusOr<HostTensor> Await(uint64_t seq, uint32_t index) override {
    OB_RETURN_IF_ERROR(status());
    log_.NoteWait();
    const std::lock_guard lock(mutex_);
    const auto found = fetched_.find({seq, index});
    if (found == fetched_.end())
      return absl::FailedPreconditionError("this value was not asked for, or awaited before");
    const Value value = std::move(found->second);
    fetched_.erase(found);
    return MadeUp(value);
  }
  bool Ready(uint64_t, uint32_t) const override { return true; }
  void Forget(uint64_t seq, uint32_t index) override {
    const std::lock_guard lock(mutex_);
    fetched_.erase({seq, index});
  }
  absl::Status Sync() override {
    log_.NoteWait();
    return status();
  }
  absl::Status status() const override {
    if (done_) return absl::CancelledError("enough steps are recorded for an estimate");
    return closed_ ? absl::FailedPreconditionError("the session is closed") : absl::OkStatus();
  }
  Stats stats() const override {
    Stats stats;
    stats.runs = runs_;
    stats.steps = log_.steps();
    stats.bytes_up = bytes_;
    stats.device = "none: steps are recorded";
    return stats;
  }
  absl::Status Close() override {
    Tell();
    closed_ = true;
    return absl::OkStatus();
  }

  RecordedWork Recorded() const override {
    std::vector<SentGraph> graphs;
    return RecordedOf(graphs);
  }
  absl::StatusOr<std::vector<ClassEstimate>> Estimates(uint64_t steps) const override {
    if (options_.target.empty())
      return absl::FailedPreconditionError(
          "an estimate needs a gateway that names its classes and prices: CLOUD=1, or a host");
    OB_ASSIGN_OR_RETURN(const std::vector<DeviceClass> classes,
                        ClassesOf(options_.target, options_.key, options_.protection));
    const RecordedWork work = WithSteps(Recorded(), steps);
    std::vector<ClassEstimate> estimates;
    for (const DeviceClass& of : classes)
      if (options_.device_class.empty() || of.name == options_.device_class)
        estimates.push_back(EstimateFor(of, work));
    if (estimates.empty())
      return absl::InvalidArgumentError(
          absl::StrCat("the gateway has no class \"", options_.device_class, "\""));
    return estimates;
  }

 private:
  struct Results {
    std::unique_ptr<Graph> graph;
    const UOp* sink = nullptr;
  };

  // `graphs`: those that were counted.
  RecordedWork RecordedOf(std::vector<SentGraph>& graphs) const {
    RecordedWork work = log_.Work(&graphs);
    work.devices = options_.devices.value_or(1);
    work.client_s = std::max(0.0, work.client_s - static_cast<double>(own_ns_) / 1e9);
    return work;
  }
  void Tell() {
    if (Pipe() < 0 || closed_) return;
    // Until it is written: another thread's record comes behind it, and has its graphs as known.
    const std::lock_guard lock(told_mutex_);
    std::vector<SentGraph> graphs;
    const RecordedWork work = RecordedOf(graphs);
    WriteTo(Pipe(), absl::StrCat(LinesOf(graphs), "session ", number_, "\n", ToText(work)));
  }
  // For a reader that schedules them; each is whole once. Requires told_mutex_.
  std::string LinesOf(const std::vector<SentGraph>& graphs) {
    if (std::getenv("OUTBOARD_ESTIMATE_GRAPHS") == nullptr) return "";
    std::string text;
    for (size_t i = 0; i < graphs.size(); ++i)
      absl::StrAppend(&text, ToLine(number_, i, graphs[i], i >= graphs_told_), "\n");
    graphs_told_ = graphs.size();
    return text;
  }

  absl::Status Define(uint64_t handle, DType dtype, std::span<const int64_t> dims) {
    OB_RETURN_IF_ERROR(status());
    const std::lock_guard lock(mutex_);
    values_[handle] = {dtype, {dims.begin(), dims.end()}};
    return absl::OkStatus();
  }

  // Requires mutex_.
  absl::StatusOr<std::vector<Value>> ResultsOf(const RunRequest& request) {
    Results& known = graphs_[std::string(request.graph_id.begin(), request.graph_id.end())];
    if (known.sink == nullptr) {
      if (request.graph == nullptr) return absl::InvalidArgumentError("a Run without its graph");
      known.graph = std::make_unique<Graph>();
      OB_ASSIGN_OR_RETURN(known.sink, DecodeGraph(*known.graph, *request.graph));
    }
    std::vector<Value> results;
    for (const UOp* result : known.sink->src)
      results.push_back({result->dtype, DimsOf(result, request.bindings)});
    return results;
  }

  static inline std::atomic<uint64_t> last_number = 0;

  const SessionOptions options_;
  const uint64_t steps_max_;  // 0: any number
  const uint64_t number_;
  std::atomic<uint64_t> last_handle_ = 0, last_seq_ = 0, runs_ = 0, bytes_ = 0;
  std::atomic<int64_t> own_ns_ = 0;  // what recording has taken, which no device would
  std::atomic<bool> closed_ = false, done_ = false;
  std::atomic<Clock::time_point> tell_at_ = Clock::now() + std::chrono::seconds(1);
  RunLog log_;
  std::mutex told_mutex_;
  size_t graphs_told_ = 0;  // of those that `log_` has; guarded by told_mutex_
  std::mutex mutex_;
  absl::flat_hash_map<uint64_t, Value> values_;  // by handle
  std::map<std::pair<uint64_t, uint32_t>, Value> fetched_;  // by seq and index
  absl::flat_hash_map<std::string, Results> graphs_;  // by id
};

}  // namespace

bool IsEstimated() { return Pipe() >= 0; }
bool IsMeasured() { return MeasurePipe() >= 0; }

void TellMeasured(const MeasuredSteps& measured) {
  WriteTo(MeasurePipe(), absl::StrFormat("measured %d %.9g %d %s\n", measured.steps,
                                         measured.seconds_per_step, measured.devices,
                                         measured.device_class));
}

absl::StatusOr<MeasuredSteps> MeasuredFromLine(std::string_view line) {
  const std::vector<std::string> words =
      absl::StrSplit(absl::string_view(line.data(), line.size()), ' ');
  MeasuredSteps measured;
  if (words.size() != 5 || words[0] != "measured" ||
      !absl::SimpleAtoi(words[1], &measured.steps) ||
      !absl::SimpleAtod(words[2], &measured.seconds_per_step) ||
      !absl::SimpleAtoi(words[3], &measured.devices) || !(measured.seconds_per_step >= 0))
    return absl::InvalidArgumentError("no measurement of a program's steps");
  measured.device_class = words[4];
  return measured;
}

RecordedWork WithSteps(RecordedWork work, uint64_t steps) {
  if (steps == 0 || work.steps == 0 || steps == work.steps) return work;
  const double times = static_cast<double>(steps) / static_cast<double>(work.steps);
  const auto scaled = [times](uint64_t count) {
    return static_cast<uint64_t>(static_cast<double>(count) * times + 0.5);
  };
  work.steps = steps;
  work.runs = scaled(work.runs);
  work.waits = scaled(work.waits);
  work.client_s *= times;
  for (KernelWork& k : work.kernels) k.count *= times;
  return work;
}

RecordedWork Since(RecordedWork now, const RecordedWork& before) {
  now.runs -= before.runs;
  now.steps -= before.steps;
  now.waits -= before.waits;
  now.client_s = std::max(0.0, now.client_s - before.client_s);
  for (KernelWork k : before.kernels) {
    k.count = -k.count;
    now.kernels.push_back(k);
  }
  return now;
}

absl::StatusOr<std::vector<ClassEstimate>> EstimatesOf(const Session& session, uint64_t steps) {
  const auto* const estimated = dynamic_cast<const Estimated*>(&session);
  if (estimated == nullptr)
    return absl::UnimplementedError("this kind of session has no estimate");
  return estimated->Estimates(steps);
}

}  // namespace session

std::unique_ptr<Session> NewRecordingSession(const session::SessionOptions& options) {
  return std::make_unique<session::RecordingSession>(options);
}

std::shared_ptr<Session> MakeRecordingSession(const session::SessionOptions& options) {
  return NewRecordingSession(options);
}

}  // namespace outboard
