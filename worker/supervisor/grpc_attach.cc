#include "worker/supervisor/grpc_attach.h"

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "wire/limits.h"
#include "worker/process/message_io.h"

namespace outboard::worker {

std::vector<std::pair<std::string, std::string>> SessionMetadata(const proto::Assign& assign,
                                                                 uint32_t rank,
                                                                 const std::string& fleet_secret) {
  std::vector<std::pair<std::string, std::string>> metadata = {
      {"outboard-session", absl::BytesToHexString(assign.session_id())},
      {"outboard-token", absl::BytesToHexString(assign.attach_token())}};
  if (rank > 0) metadata.emplace_back("outboard-rank", absl::StrCat(rank));
  metadata.emplace_back("authorization", absl::StrCat("Bearer ", fleet_secret));
  return metadata;
}

GrpcAttach::GrpcAttach(proto::Fleet::Stub& fleet, const proto::Assign& assign, uint32_t rank,
                       const std::string& fleet_secret, int fd,
                       std::chrono::milliseconds gateway_reads)
    : fd_(fd), gateway_reads_(gateway_reads) {
  for (const auto& [name, value] : SessionMetadata(assign, rank, fleet_secret))
    context_.AddMetadata(name, value);
  stream_ = fleet.Attach(&context_);
  up_ = std::thread([this] { Up(); });
  down_ = std::thread([this] { Down(); });
}

GrpcAttach::~GrpcAttach() {
  shutdown(fd_, SHUT_RDWR);
  context_.TryCancel();
  Finish();
  down_.join();
  close(fd_);
}

void GrpcAttach::Finish() {
  if (!up_.joinable()) return;
  // The gateway ends the call once it has read all frames. To cancel the call before that would
  // drop those that it has not read.
  const auto until = std::chrono::steady_clock::now() + gateway_reads_;
  if (up_ended_.get_future().wait_until(until) == std::future_status::ready)
    call_ended_.get_future().wait_until(until);
  context_.TryCancel();
  up_.join();
}

void GrpcAttach::Up() {
  proto::ServerFrame frame;
  // As long as the gateway takes them: some 50 MB in memory, whatever is in them.
  while (ReadMessage(fd_, &frame, {.bytes_max = wire::kMessageBytesMax}).ok())
    if (!stream_->Write(frame)) break;
  stream_->WritesDone();
  up_ended_.set_value();
}

void GrpcAttach::Down() {
  proto::ClientFrame frame;
  bool takes = true;  // false: the executor has ended, and frames for it are dropped
  while (stream_->Read(&frame)) {
    if (takes) takes = WriteMessage(fd_, frame).ok();
    if (!takes) shutdown(fd_, SHUT_RDWR);
  }
  shutdown(fd_, SHUT_RDWR);  // the executor sees that its gateway is gone
  call_ended_.set_value();
}

}  // namespace outboard::worker
