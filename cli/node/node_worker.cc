#include "cli/node/node_worker.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/exec_arguments.h"
#include "runtime/devices.h"
#include "telemetry/log.h"
#include "wire/status.h"
#include "wire/tls/private_file.h"
#include "worker/executor/executor_main.h"
#include "worker/init/node_driver.h"
#include "worker/init/node_facts.h"
#include "worker/init/node_init.h"
#include "worker/tpm/node_tpm.h"

namespace outboard::cli {

namespace {

constexpr std::chrono::seconds kSentWithin{5};
constexpr size_t kCommandBytesMax = 64 << 10;
constexpr char kHasDriver[] = "OUTBOARD_NODE_DRIVER";  // of a worker that was started with it
constexpr char kLeavesGpus[] = "leaves-gpus";  // in the node's folder: why
constexpr char kNamedFile[] = "driver-named";  // in the node's folder: NodeDriver; empty: none

// 0: the kernel does not say.
int64_t MemoryAvailableMib() {
  std::ifstream lines("/proc/meminfo");
  for (std::string name, rest; lines >> name && std::getline(lines, rest);) {
    int64_t kib = 0;
    if (name == "MemAvailable:" && std::sscanf(rest.c_str(), "%ld", &kib) == 1) return kib >> 10;
  }
  return 0;
}

std::string BootServer() {
  const char* const address = std::getenv("OUTBOARD_NODE_BOOT");
  return address != nullptr ? address : "";
}

}  // namespace

absl::StatusOr<std::optional<NodeStart>> StartOfNode(ServerFlags& flags) {
  if (flags.node_folder.empty()) return std::nullopt;
  NodeStart start{
      .facts = worker::ReadNodeFacts(), .claim = {}, .tpm = worker::TpmOfThisMachine()};
  // tpm2-tss writes lines of its own about each error, which ours has already.
  if (start.tpm.has_value()) setenv("TSS2_LOG", "all+none", /*overwrite=*/0);
  if (flags.name.empty()) flags.name = start.facts.serial();
  start.facts.set_serial(worker::CleanSerial(flags.name));
  if (start.facts.serial().empty())
    return absl::InvalidArgumentError(
        "this machine says no serial number, UUID or network address by which its gateway could "
        "know it");
  if (const char* const image = std::getenv("OUTBOARD_NODE_IMAGE"); image != nullptr)
    start.facts.set_image(image);
  const auto claim = tls::ReadFile(flags.node_folder + "/claim", /*is_secret=*/true);
  if (!claim.ok() && !absl::IsNotFound(claim.status())) return claim.status();
  if (claim.ok()) start.claim = std::string(absl::StripAsciiWhitespace(*claim));
  if (flags.identity_file.empty()) flags.identity_file = flags.node_folder + "/identity";
  return start;
}

void NoteJoined(const std::string& node_folder) {
  // What the image and its idle worker take is the machine's memory without this.
  telemetry::LogInfo("node_joined", {{"memory_available_mib", MemoryAvailableMib()}});
  std::ofstream(node_folder + "/" + worker::kJoinedFile) << "joined\n";
}

void StartWithDriver(const std::string& node_folder, const std::vector<int>& kept) {
  const std::string libraries = worker::DriverLibraries(node_folder);
  if (!worker::HasCuda(libraries) || std::getenv(kHasDriver) != nullptr) return;
  if (const std::string why = worker::FileText(node_folder + "/" + kLeavesGpus); !why.empty()) {
    telemetry::LogWarning("node_driver", {{"message", "the gateway refused its GPUs: " + why},
                                          {"effect", "this machine serves with its CPUs"}});
    return;
  }
  setenv("LD_LIBRARY_PATH", libraries.c_str(), /*overwrite=*/1);
  setenv(kHasDriver, "1", /*overwrite=*/1);
  setenv("OUTBOARD_DEVICE", "auto", /*overwrite=*/0);
  const std::string line = worker::FileText("/proc/self/cmdline", kCommandBytesMax);
  std::vector<std::string> words = absl::StrSplit(line, '\0', absl::SkipEmpty());
  // Else their numbers would be those of other files there, which it would watch.
  for (const int fd : kept)
    if (fd >= 0) fcntl(fd, F_SETFD, 0);
  execv("/proc/self/exe", ExecPointers(words).data());
  telemetry::LogWarning("node_driver", {{"message", "the worker cannot start again with it"}});
}

bool LeaveGpus(const std::string& node_folder, const absl::Status& why) {
  if (!absl::IsFailedPrecondition(why) || std::getenv(kHasDriver) == nullptr) return false;
  if (worker::ExecutorOptionsFromEnvironment().device == runtime::kCpu) return false;
  std::ofstream(node_folder + "/" + kLeavesGpus) << why.message() << "\n";
  return true;
}

DriverFetch::DriverFetch(const worker::Enrolment& enrolment, const NodeStart& start,
                         std::string node_folder, std::function<void()> on_ready)
    : kernel_(start.facts.kernel()),
      node_folder_(std::move(node_folder)),
      boot_server_(BootServer()),
      on_ready_(std::move(on_ready)) {
  if (!worker::DriverLibraries(node_folder_).empty()) return;  // an earlier start has brought it
  const std::string kept = node_folder_ + "/" + kNamedFile;
  if (!enrolment.has_asked()) {
    // What a worker that was started again would be told was said to the one before.
    proto::NodeDriver named;
    if (named.ParseFromString(worker::FileText(kept)) && !named.digest().empty()) named_ = named;
    return;
  }
  named_ = enrolment.driver();
  std::ofstream(kept, std::ios::binary | std::ios::trunc)
      << named_.value_or(proto::NodeDriver()).SerializeAsString();
  if (!named_.has_value())
    SayWithout(absl::StrCat("no driver for kernel ", kernel_,
                            " was added (outboard image add --driver)"));
}

uint64_t DriverFetch::memory_bytes() const {
  const bool may_come =
      named_.has_value() && worker::CheckDriver(*named_, boot_server_, kernel_).ok();
  return worker::DriverMemoryBytes(node_folder_, may_come ? &*named_ : nullptr);
}

void DriverFetch::Begin(std::function<void()> on_none) {
  if (named_.has_value())
    thread_ = std::jthread([this, on_none = std::move(on_none)](std::stop_token stop) {
      Fetch(std::move(stop), on_none);
    });
}

void DriverFetch::Fetch(std::stop_token stop, const std::function<void()>& on_none) {
  const bool is_reserved = memory_bytes() > 0;
  std::string said;  // once for each reason
  const auto on_pause = [&said](const absl::Status& why) {
    if (std::exchange(said, std::string(why.message())) == why.message()) return;
    telemetry::LogWarning("node_driver",
                          {{"message", said},
                           {"effect", "it is tried again; this machine serves with its CPUs"}});
  };
  const absl::Status used = worker::UseDriver(*named_, boot_server_, kernel_, node_folder_,
                                              stop, on_pause);
  if (stop.stop_requested()) return;  // whoever is started next fetches it
  if (!used.ok()) {
    SayWithout(std::string(used.message()));
    if (is_reserved) on_none();
    return;
  }
  telemetry::LogInfo("node_driver", {{"driver", named_->digest()}, {"kernel", kernel_}});
  if (!worker::HasCuda(worker::DriverLibraries(node_folder_)))
    return SayWithout("the driver has no lib/libcuda.so.1");
  is_ready_ = true;
  on_ready_();
}

void DriverFetch::SayWithout(const std::string& why) {
  telemetry::LogWarning("node_driver",
                        {{"message", why}, {"effect", "this machine serves with its CPUs"}});
}

NodeLogStream::NodeLogStream(const std::string& node_folder)
    : sender_(node_folder + "/log",
              [this](const std::vector<std::string>& lines) { return Send(lines); }) {}

void NodeLogStream::Use(std::shared_ptr<grpc::Channel> channel) {
  std::lock_guard lock(mutex_);
  channel_ = std::move(channel);
}

absl::Status NodeLogStream::Send(const std::vector<std::string>& lines) {
  std::shared_ptr<grpc::Channel> channel;
  {
    std::lock_guard lock(mutex_);
    channel = channel_;
  }
  if (channel == nullptr) return absl::UnavailableError("the node has not enrolled yet");
  proto::NodeLogRequest request;
  for (const std::string& line : lines) request.add_lines(line);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kSentWithin);
  proto::NodeLogReply reply;
  return wire::FromGrpc(proto::Fleet::NewStub(channel)->NodeLog(&context, request, &reply));
}

}  // namespace outboard::cli
