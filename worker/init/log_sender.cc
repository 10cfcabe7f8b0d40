#include "worker/init/log_sender.h"

#include <chrono>
#include <fstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "worker/init/node_facts.h"
#include "worker/init/node_log.h"

namespace outboard::worker {
namespace {

constexpr std::chrono::seconds kLooksEvery{1}, kAgainAfter{5};
constexpr size_t kLinesMax = 200;  // of one call; the gateway takes 256

}  // namespace

LogSender::LogSender(std::string path, Send send) : path_(std::move(path)), send_(std::move(send)) {
  uint64_t sent = 0;
  if (absl::SimpleAtoi(FileText(path_ + ".sent", 32), &sent)) sent_ = sent;
  thread_ = std::thread([this] { Work(); });
}

LogSender::~LogSender() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void LogSender::Work() {
  for (bool last = false; !last;) {
    const absl::Status status = SendNew();
    std::unique_lock lock(mutex_);
    last = stopping_;
    wake_.wait_for(lock, status.ok() ? kLooksEvery : kAgainAfter, [this] { return stopping_; });
  }
}

absl::Status LogSender::SendNew() {
  for (;;) {
    const std::string text = FileText(path_, 2 * kNodeLogFileBytesMax);
    if (text.size() < sent_) sent_ = 0;  // it was begun anew
    std::vector<std::string> lines;
    size_t at = sent_;
    while (lines.size() < kLinesMax) {
      const size_t end = text.find('\n', at);
      if (end == std::string::npos) break;
      lines.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    if (lines.empty()) return absl::OkStatus();
    if (absl::Status status = send_(lines); !status.ok()) return status;
    sent_ = at;
    std::ofstream(path_ + ".sent", std::ios::trunc) << sent_ << "\n";
  }
}

}  // namespace outboard::worker
