#include "cli/node/node_worker.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "telemetry/log.h"
#include "wire/status.h"
#include "wire/tls/private_file.h"
#include "worker/init/node_driver.h"
#include "worker/init/node_facts.h"
#include "worker/init/node_init.h"

namespace outboard::cli {

namespace {

constexpr std::chrono::seconds kSentWithin{5};
constexpr size_t kCommandBytesMax = 64 << 10;
constexpr char kHasDriver[] = "OUTBOARD_NODE_DRIVER";  // of a worker that was started with it

// 0: the kernel does not say.
int64_t MemoryAvailableMib() {
  std::ifstream lines("/proc/meminfo");
  for (std::string name, rest; lines >> name && std::getline(lines, rest);) {
    int64_t kib = 0;
    if (name == "MemAvailable:" && std::sscanf(rest.c_str(), "%ld", &kib) == 1) return kib >> 10;
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::optional<NodeStart>> StartOfNode(ServerFlags& flags) {
  if (flags.node_folder.empty()) return std::nullopt;
  NodeStart start{.facts = worker::ReadNodeFacts(), .claim = {}};
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

void StartWithDriver(const std::string& node_folder) {
  const std::string libraries = worker::DriverLibraries(node_folder);
  if (libraries.empty() || std::getenv(kHasDriver) != nullptr) return;
  setenv("LD_LIBRARY_PATH", libraries.c_str(), /*overwrite=*/1);
  setenv(kHasDriver, "1", /*overwrite=*/1);
  const std::string line = worker::FileText("/proc/self/cmdline", kCommandBytesMax);
  std::vector<std::string> words = absl::StrSplit(line, '\0', absl::SkipEmpty());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv("/proc/self/exe", argv.data());
  telemetry::LogWarning("node_driver", {{"message", "the worker cannot start again with it"}});
}

bool FetchDriver(const worker::Enrolment& enrolment, const NodeStart& start,
                 const std::string& node_folder) {
  // What a worker that was started again would be told was said to the one before.
  if (std::getenv(kHasDriver) != nullptr || !enrolment.has_asked()) return false;
  absl::Status used;
  if (enrolment.driver().has_value()) {
    const char* const boot = std::getenv("OUTBOARD_NODE_BOOT");
    used = worker::UseDriver(*enrolment.driver(), boot != nullptr ? boot : "",
                             start.facts.kernel(), node_folder);
  } else {
    used = absl::NotFoundError(
        absl::StrCat("no driver for kernel ", start.facts.kernel(),
                     " was added (outboard image add --driver)"));
  }
  if (used.ok()) {
    telemetry::LogInfo("node_driver", {{"driver", enrolment.driver()->digest()}});
    return true;
  }
  telemetry::LogWarning("node_driver", {{"message", used.message()},
                                        {"effect", "this machine serves with its CPUs"}});
  return false;
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
