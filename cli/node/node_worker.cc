#include "cli/node/node_worker.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdlib>
#include <fstream>

#include "absl/strings/ascii.h"
#include "base/check.h"
#include "wire/status.h"
#include "wire/tls/private_file.h"
#include "worker/init/node_facts.h"
#include "worker/init/node_init.h"

namespace outboard::cli {

namespace {

constexpr std::chrono::seconds kSentWithin{5};

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
  std::ofstream(node_folder + "/" + worker::kJoinedFile) << "joined\n";
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
