#include "worker/devices/worker_devices.h"

#include <algorithm>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "telemetry/log.h"
#include "worker/devices/device_rates.h"
#include "worker/devices/device_info.h"

namespace outboard::worker {
namespace {

// Of each of `count` sessions. What is reserved comes off the whole, so that the part that no
// session has stays the same.
int64_t ShareOfMemory(uint64_t reserved, int count) {
  const int64_t all = runtime::DefaultMemoryBytesMax();
  const auto less = static_cast<double>(reserved) * 0.75;
  return std::max(all / 8, all - static_cast<int64_t>(less)) / count;
}

std::vector<runtime::ListedDevice> GpusOf(const std::string& kind) {
  std::vector<std::string> left_out;
  std::vector<runtime::ListedDevice> gpus = runtime::ListDevices(kind, &left_out);
  for (const std::string& why : left_out)
    telemetry::LogWarning("gpu_left_out",
                          {{"message", why}, {"effect", "the other GPUs are served"}});
  return gpus;
}

}  // namespace

WorkerDevices::WorkerDevices(const WorkerDevicesOptions& options)
    : options_(options),
      gpus_(GpusOf(options.kind)),
      count_(gpus_.empty() ? options.count_max
                           : std::min(options.count_max, static_cast<int>(gpus_.size()))),
      host_memory_bytes_(options.memory_bytes_max > 0
                             ? options.memory_bytes_max
                             : ShareOfMemory(options.memory_bytes_reserved, count_)),
      in_service_(gpus_.size()) {
  for (uint32_t i = 0; i < gpus_.size(); ++i)
    telemetry::LogInfo("gpu_found", {{"device", i},
                                     {"class", DescribeGpu(gpus_[i].properties).hardware_class},
                                     {"model", gpus_[i].properties.name},
                                     {"memory_bytes", gpus_[i].properties.memory_bytes},
                                     {"shown_by", absl::StrJoin(gpus_[i].environment, " ")},
                                     {"served", static_cast<int>(i) < count_}});
}

void WorkerDevices::ReleaseReserved() {
  if (options_.memory_bytes_max <= 0) host_memory_bytes_ = ShareOfMemory(/*reserved=*/0, count_);
}

int64_t WorkerDevices::MemoryOn(uint32_t device) const {
  if (gpus_.empty()) return host_memory_bytes_;
  const int64_t has = gpus_[device].properties.memory_bytes;
  return options_.memory_bytes_max > 0 ? std::min(options_.memory_bytes_max, has) : has;
}

std::vector<std::string> WorkerDevices::EnvironmentOf(uint32_t device) const {
  return gpus_.empty() ? std::vector<std::string>() : gpus_[device].environment;
}

void WorkerDevices::Describe(const std::function<std::vector<int>(uint32_t device)>& cores,
                             proto::Register& entry) const {
  for (uint32_t i = 0; i < static_cast<uint32_t>(count_); ++i) {
    const DeviceInfo info =
        gpus_.empty() ? DescribeDevice(options_.kind, static_cast<int>(cores(i).size()))
                      : DescribeGpu(gpus_[i].properties);
    proto::Device& device = *entry.add_devices();
    device.set_kind(options_.reference ? "ref" : options_.kind);
    device.set_name(info.name);
    device.set_hardware_class(info.hardware_class);
    device.set_memory_bytes(static_cast<uint64_t>(MemoryOn(i)));
    if (!rates_.empty()) *device.mutable_rates() = rates_[i];
  }
  entry.set_measures(true);
  entry.set_tested(tested_);
  for (const uint32_t out : in_service_.AllOut()) entry.add_out_of_service(out);
  entry.set_exclusive_devices(are_gpus());
}

absl::StatusOr<proto::DeviceRates> WorkerDevices::MeasureOne(
    uint32_t device, const std::vector<std::string>& command, const std::vector<int>& cores,
    std::chrono::milliseconds within, const std::string& what) const {
  absl::StatusOr<proto::DeviceRates> rates =
      MeasureDevice(command, EnvironmentOf(device), cores, within, what);
  if (!rates.ok())
    telemetry::LogError("device_not_measured",
                        {{"device", device}, {"message", rates.status().ToString()}});
  else
    telemetry::LogInfo("device_measured", {{"device", device},
                                           {"gflops", rates->gflops()},
                                           {"memory_gb_per_s", rates->memory_gb_per_s()},
                                           {"tested", !what.empty()}});
  return rates;
}

void WorkerDevices::MeasureAtStart(
    const std::vector<std::string>& command,
    const std::function<std::vector<int>(uint32_t device)>& cores,
    std::chrono::milliseconds within) {
  if (!are_gpus()) return;
  std::vector<std::future<absl::StatusOr<proto::DeviceRates>>> running;
  for (uint32_t i = 0; i < static_cast<uint32_t>(count_); ++i)
    running.push_back(std::async(std::launch::async, [&, i, of = cores(i)] {
      return MeasureOne(i, command, of, within, /*what=*/"");
    }));
  std::vector<proto::DeviceRates> rates;
  for (auto& each : running)
    if (absl::StatusOr<proto::DeviceRates> one = each.get(); one.ok()) rates.push_back(*one);
  if (rates.size() == running.size()) rates_ = std::move(rates);
}

proto::Measured WorkerDevices::Measure(
    const proto::Measure& asked, const std::vector<std::string>& command,
    const std::function<std::vector<int>(uint32_t device)>& cores) {
  proto::Measured measured;
  const std::string what =
      !asked.test() ? "" : asked.without_rates() ? kTestAlone : kTestAndRates;
  for (uint32_t i = 0; i < static_cast<uint32_t>(count_); ++i) {
    const auto rates =
        MeasureOne(i, command, cores(i), asked.test() ? kTestWithin : kMeasureWithin, what);
    if (!rates.ok()) {
      measured.clear_rates();
      const std::string why(rates.status().message());
      if (absl::IsFailedPrecondition(rates.status()))
        measured.set_fault(absl::StrCat("device ", i, ": ", why));
      else
        measured.set_failed(why);
      return measured;
    }
    *measured.add_rates() = *rates;
  }
  measured.set_tested(asked.test());
  tested_ |= asked.test();
  // Without a number of operations a bandwidth is no answer to who asks for both.
  if (asked.without_rates())
    measured.clear_rates();
  else
    rates_.assign(measured.rates().begin(), measured.rates().end());
  return measured;
}

std::optional<proto::DeviceOut> WorkerDevices::Failed(uint32_t device, DeviceFailure failure,
                                                      uint64_t account,
                                                      const std::string& words) {
  if (device >= gpus_.size()) return std::nullopt;
  const std::string& model = gpus_[device].properties.name;
  telemetry::LogWarning("device_failed",
                        {{"device", device},
                         {"model", model},
                         {"account", account},
                         {"message", words}});
  const std::optional<std::string> why =
      in_service_.Failed(device, failure, account, words, DevicesInService::Clock::now());
  if (!why.has_value()) return std::nullopt;
  telemetry::LogError("device_out_of_service",
                      {{"device", device}, {"model", model}, {"message", *why}});
  proto::DeviceOut out;
  out.set_device(device);
  out.set_why(*why);
  return out;
}

}  // namespace outboard::worker
