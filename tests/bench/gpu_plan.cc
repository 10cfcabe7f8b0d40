#include "tests/bench/gpu_plan.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/copies.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/dtype.h"
#include "compiler/ir/encoding.h"
#include "compiler/schedule_options.h"
#include "compiler/search/beam.h"
#include "tests/bench/report.h"
#include "worker/compile/in_process_compiler.h"
#include "worker/tuning/kernel_measurer.h"

namespace outboard::bench {
namespace {

using runtime::DeviceAddress;
using runtime::DeviceBuffer;
using schedule::ScheduledBuffer;

// One piece of numbers, which are the same again every so many: more would take longer to draw than
// to compute with. torch_gpu.py draws the same for the error of a product.
constexpr int64_t kDrawn = 1 << 20;
// Larger buffers take longer to compare on the host than the search has.
constexpr int64_t kSearchBytesMax = int64_t{2} << 30;
// Of the plan's time: a kernel that takes less is not searched.
constexpr double kShareLeast = 0.01;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Floats as the bits of their type: the exponent of 1/8 to 1/2, the rest drawn.
std::string Drawn(DType dtype, int64_t elements) {
  const int width = ByteWidth(dtype);
  std::string bytes(static_cast<size_t>(elements * width), '\0');
  uint64_t state = 0x9e3779b97f4a7c15;
  for (int64_t i = 0; i < elements; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const double value = 0.125 + 0.875 * static_cast<double>(state >> 11) * 0x1p-53;
    StoreFloat(dtype, value, bytes.data() + i * width);
  }
  return bytes;
}

// Uploads the first piece and doubles it on the device.
absl::Status FillDrawn(runtime::Device& device, DeviceAddress to, DType dtype, int64_t elements) {
  const std::string piece = Drawn(dtype, std::min(elements, kDrawn));
  OB_RETURN_IF_ERROR(device.Upload(to, piece));
  const int64_t all = elements * ByteWidth(dtype);
  for (auto done = static_cast<int64_t>(piece.size()); done < all; done *= 2)
    OB_RETURN_IF_ERROR(device.Copy(to + done, to, std::min(done, all - done)));
  return device.Synchronize();
}

int64_t BytesOf(const UOp* kernel) {
  int64_t bytes = 0;
  for (const UOp* node : PostOrder(kernel))
    if (node->op == Op::kGlobal) bytes += GlobalOf(node).elements() * ByteWidth(node->dtype);
  return bytes * CopiesOf(kernel);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuPlan>> GpuPlan::Make(runtime::Device& device,
                                                       const Target& target,
                                                       const GraphMaker& graph,
                                                       std::span<const Opts> opts) {
  std::unique_ptr<GpuPlan> plan(new GpuPlan(device, target));
  const SentProgram sent = graph(plan->graph_);
  OB_ASSIGN_OR_RETURN(const schedule::Schedule schedule,
                      schedule::MakeSchedule(plan->graph_, sent.sink, target, sent.donated,
                                             ScheduleOptionsFor(plan->target_)));
  OB_RETURN_IF_ERROR(plan->MakeBuffers(schedule));
  OB_RETURN_IF_ERROR(plan->AddLaunches(schedule, opts));
  return plan;
}

absl::Status GpuPlan::MakeBuffers(const schedule::Schedule& schedule) {
  OB_ASSIGN_OR_RETURN(const DeviceAddress arena, Memory(schedule.arena_bytes));
  const auto place = [](std::vector<Place>& places, int64_t index) -> Place& {
    if (static_cast<size_t>(index) >= places.size()) places.resize(static_cast<size_t>(index) + 1);
    return places[static_cast<size_t>(index)];
  };
  const auto make_input = [&](const ScheduledBuffer& buffer, int64_t slot) -> absl::Status {
    OB_ASSIGN_OR_RETURN(const DeviceAddress own, Memory(buffer.bytes()));
    place(inputs_, slot) = {own, buffer.bytes()};
    return IsFloat(buffer.dtype) ? FillDrawn(device_, own, buffer.dtype, buffer.elements)
                                 : absl::OkStatus();
  };
  for (const ScheduledBuffer& buffer : schedule.buffers)
    if (buffer.kind == ScheduledBuffer::Kind::kInput)
      OB_RETURN_IF_ERROR(make_input(buffer, buffer.index));
  for (const ScheduledBuffer& buffer : schedule.buffers) {
    if (buffer.kind == ScheduledBuffer::Kind::kTemporary) {
      at_.push_back(arena + buffer.index);
    } else if (buffer.kind == ScheduledBuffer::Kind::kInput) {
      at_.push_back(place(inputs_, buffer.index).address);
    } else {
      const auto index = static_cast<size_t>(buffer.index);
      const int over = index < schedule.over.size() ? schedule.over[index] : schedule::kNoInput;
      DeviceAddress address{};
      if (over != schedule::kNoInput) {
        // Kernels may read what was there only by the buffer of the result.
        if (place(inputs_, over).address == DeviceAddress{})
          OB_RETURN_IF_ERROR(make_input(buffer, over));
        address = place(inputs_, over).address;
      } else {
        OB_ASSIGN_OR_RETURN(address, Memory(buffer.bytes()));
      }
      place(results_, buffer.index) = {address, buffer.bytes()};
      at_.push_back(address);
    }
  }
  return absl::OkStatus();
}

absl::Status GpuPlan::AddLaunches(const schedule::Schedule& schedule,
                                  std::span<const Opts> opts) {
  for (size_t first = 0; first < schedule.kernels.size();) {
    const auto copies = static_cast<size_t>(std::max(1, schedule.kernels[first].together));
    Launch launch{.ast = WithCopies(graph_, schedule.kernels[first].ast,
                                    static_cast<int64_t>(copies))};
    if (!opts.empty()) {
      if (launches_.size() >= opts.size())
        return absl::InvalidArgumentError("a plan of more launches than there are Opts for");
      launch.opts = opts[launches_.size()];
    }
    OB_RETURN_IF_ERROR(Load(launch));
    const auto slots = static_cast<size_t>(launch.kernel->buffer_count()) / copies;
    for (size_t k = first; k < first + copies; ++k) {
      const std::vector<int>& buffers = schedule.kernels[k].buffers;
      for (size_t slot = 0; slot < slots; ++slot)
        launch.slots.push_back(slot < buffers.size() ? at_[static_cast<size_t>(buffers[slot])]
                                                     : DeviceAddress{});
    }
    launches_.push_back(std::move(launch));
    first += copies;
  }
  if (!opts.empty() && launches_.size() != opts.size())
    return absl::InvalidArgumentError("a plan of fewer launches than there are Opts for");
  return absl::OkStatus();
}

absl::Status GpuPlan::Load(Launch& launch) {
  OB_ASSIGN_OR_RETURN(const CompiledKernel compiled,
                      CompileKernel(launch.ast, {.target = target_, .opts = launch.opts}));
  OB_ASSIGN_OR_RETURN(launch.kernel, device_.Load(compiled));
  return absl::OkStatus();
}

absl::StatusOr<double> GpuPlan::SecondsOf(const Launch& launch) {
  std::vector<double> seconds;
  for (int i = 0; i <= kRepeatsLeast; ++i) {
    OB_ASSIGN_OR_RETURN(const double one, device_.Time([&] {
                          return device_.Launch(*launch.kernel, launch.slots, {});
                        }));
    if (i > 0) seconds.push_back(one);
  }
  return Quantile(seconds, 0.5);
}

absl::StatusOr<PlanSearch> GpuPlan::Search(double seconds, int width) {
  const double end = Now() + seconds;
  struct Kernel {
    std::string encoding;
    std::vector<Launch*> launches;
    double seconds = 0;  // of all of them
  };
  std::map<std::string, Kernel> distinct;  // by encoding
  double all = 0;
  for (Launch& launch : launches_) {
    if (launch.kernel->tasks() == 0) continue;
    OB_ASSIGN_OR_RETURN(EncodedGraph encoded, EncodeGraph(launch.ast));
    Kernel& kernel = distinct[encoded.bytes];
    kernel.encoding = std::move(encoded.bytes);
    kernel.launches.push_back(&launch);
  }
  std::vector<Kernel*> costliest;
  for (auto& [encoding, kernel] : distinct) {
    // Where their times alone take as long, there is no time to search any.
    if (Now() > end) return PlanSearch{.kernels = distinct.size(), .finished = false};
    OB_ASSIGN_OR_RETURN(const double one, SecondsOf(*kernel.launches[0]));
    kernel.seconds = one * static_cast<double>(kernel.launches.size());
    all += kernel.seconds;
    costliest.push_back(&kernel);
  }
  std::sort(costliest.begin(), costliest.end(),
            [](const Kernel* a, const Kernel* b) { return a->seconds > b->seconds; });
  PlanSearch done{.kernels = distinct.size()};
  worker::InProcessCompiler compiler({.target = target_});
  double left = all;
  for (Kernel* kernel : costliest) {
    const UOp* const ast = kernel->launches[0]->ast;
    const double share = (end - Now()) * kernel->seconds / left;
    left -= kernel->seconds;
    if (share <= 0 || kernel->seconds < kShareLeast * all || BytesOf(ast) > kSearchBytesMax)
      continue;
    const double until = Now() + share;
    worker::KernelMeasurer measurer(kernel->encoding, &compiler, &device_, {});
    OB_RETURN_IF_ERROR(measurer.Open());
    const search::BeamOptions options{
        .width = width, .stop = [&] { return Now() > until; }, .target = target_};
    const absl::StatusOr<search::BeamResult> result = search::Beam(ast, measurer, options);
    OB_RETURN_IF_ERROR(device_.health());
    if (!result.ok()) {  // it keeps what it has
      std::fprintf(stderr, "search: %s\n", result.status().ToString().c_str());
      continue;
    }
    ++done.searched;
    done.trials += result->trials.size();
    done.finished = done.finished && result->finished;
    for (Launch* launch : kernel->launches) {
      launch->opts = result->best.opts;
      OB_RETURN_IF_ERROR(Load(*launch));
    }
  }
  record_.reset();
  return done;
}

std::vector<GpuPlan::Opts> GpuPlan::opts() const {
  std::vector<Opts> all;
  for (const Launch& launch : launches_) all.push_back(launch.opts);
  return all;
}

absl::Status GpuPlan::Queue(int times) {
  std::vector<runtime::KernelLaunch> launches;
  for (int i = 0; i < times; ++i)
    for (const Launch& launch : launches_)
      launches.push_back({launch.kernel.get(), launch.slots});
  return device_.LaunchAll(launches, {}, record_);
}

absl::StatusOr<double> GpuPlan::Seconds(int repeats) {
  std::vector<double> seconds;
  for (int i = 0; i <= std::max(repeats, kRepeatsLeast); ++i) {
    OB_ASSIGN_OR_RETURN(const double one, device_.Time([&] { return Queue(); }));
    if (i > 0) seconds.push_back(one);  // the first finds no graph of launches
  }
  return Quantile(seconds, 0.5);
}

absl::StatusOr<std::string> GpuPlan::Download(const Place& place) {
  std::string bytes(static_cast<size_t>(place.bytes), '\0');
  OB_RETURN_IF_ERROR(device_.Download(place.address, place.bytes, bytes.data()));
  return bytes;
}

absl::StatusOr<std::vector<std::string>> GpuPlan::Results() {
  std::vector<std::string> all;
  for (const Place& place : results_) {
    OB_ASSIGN_OR_RETURN(all.emplace_back(), Download(place));
  }
  return all;
}

absl::StatusOr<std::string> GpuPlan::Input(int64_t slot) {
  return Download(inputs_.at(static_cast<size_t>(slot)));
}

void TellBeforeSearch(std::span<const DeviceTimes> times) {
  for (const DeviceTimes& time : times)
    std::fprintf(stderr, "%s: %g s without BEAM\n", time.name.c_str(), time.seconds_nobeam);
}

absl::StatusOr<std::vector<DeviceTimes>> MeasurePrograms(runtime::Device& device,
                                                         const Target& target,
                                                         std::span<const GpuProgram> programs,
                                                         const GpuTrial& trial) {
  std::vector<DeviceTimes> times;
  std::vector<std::unique_ptr<GpuPlan>> plans;  // null: to be made again
  for (const GpuProgram& program : programs) {
    OB_ASSIGN_OR_RETURN(std::unique_ptr<GpuPlan> plan,
                        GpuPlan::Make(device, target, program.graph));
    OB_ASSIGN_OR_RETURN(const double seconds, plan->Seconds(trial.repeats));
    if (program.check != nullptr) OB_RETURN_IF_ERROR(program.check(*plan));
    times.push_back({program.name, seconds, seconds});
    if (trial.search_seconds <= 0 || device.memory_bytes_in_use() > device.memory_bytes_max() / 2)
      plan.reset();
    plans.push_back(std::move(plan));
  }
  if (trial.before_search != nullptr) trial.before_search();
  if (trial.search_seconds > 0) TellBeforeSearch(times);
  double left = trial.search_seconds, weights = 0;  // of the searches alone
  for (const GpuProgram& program : programs) weights += program.weight;
  for (size_t i = 0; trial.search_seconds > 0 && i < programs.size(); ++i) {
    const auto search = [&]() -> absl::StatusOr<double> {
      if (left <= 0) return absl::DeadlineExceededError("no time is left to search");
      std::unique_ptr<GpuPlan> plan = std::move(plans[i]);
      if (plan == nullptr) {
        OB_ASSIGN_OR_RETURN(plan, GpuPlan::Make(device, target, programs[i].graph));
      }
      const double begin = Now();
      const auto done = plan->Search(left * programs[i].weight / weights, trial.beam_width);
      left -= Now() - begin;
      OB_RETURN_IF_ERROR(done.status());
      if (done->searched == 0) return absl::DeadlineExceededError("too little time to search");
      if (programs[i].check != nullptr) OB_RETURN_IF_ERROR(programs[i].check(*plan));
      return plan->Seconds(trial.repeats);
    };
    const absl::StatusOr<double> seconds = search();
    if (seconds.ok()) {
      times[i].seconds = *seconds;
      times[i].searched = true;
    } else {
      std::fprintf(stderr, "search for %s: %s\n", programs[i].name.c_str(),
                   seconds.status().ToString().c_str());
    }
    weights -= programs[i].weight;
    if (!device.health().ok()) break;
  }
  return times;
}

absl::StatusOr<double> CopiedBytesPerSecond(runtime::Device& device, int64_t bytes, int repeats) {
  constexpr int kCopies = 8;
  OB_ASSIGN_OR_RETURN(const DeviceBuffer from, device.Allocate(bytes));
  OB_ASSIGN_OR_RETURN(const DeviceBuffer to, device.Allocate(bytes));
  OB_RETURN_IF_ERROR(device.Fill(from.address(), 1, bytes));
  std::vector<double> rates;
  for (int i = 0; i <= std::max(repeats, kRepeatsLeast); ++i) {
    // Copies are no launches, which Time's clock begins with.
    OB_RETURN_IF_ERROR(device.Synchronize());
    const double begin = Now();
    for (int k = 0; k < kCopies; ++k)
      OB_RETURN_IF_ERROR(device.Copy(to.address(), from.address(), bytes));
    OB_RETURN_IF_ERROR(device.Synchronize());
    if (i > 0) rates.push_back(2.0 * kCopies * static_cast<double>(bytes) / (Now() - begin));
  }
  return Quantile(rates, 0.5);
}

absl::StatusOr<DeviceAddress> GpuPlan::Memory(int64_t bytes) {
  OB_ASSIGN_OR_RETURN(DeviceBuffer buffer, device_.Allocate(bytes));
  OB_RETURN_IF_ERROR(device_.Fill(buffer.address(), 0, bytes));
  memory_.push_back(std::move(buffer));
  return memory_.back().address();
}

}  // namespace outboard::bench
