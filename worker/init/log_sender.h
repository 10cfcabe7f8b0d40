// Sends what a node has logged (worker/init/node_log.h) to its gateway, from the node's first
// second on: lines from before it had an address wait in the file. A worker that is started again
// goes on where the one before stopped, by a file beside the log.
//
// Threads: any; one of its own.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"

namespace outboard::worker {

class LogSender {
 public:
  // Whoever passes lines on; called on the sender's thread. UNAVAILABLE or another error: again.
  using Send = std::function<absl::Status(const std::vector<std::string>& lines)>;
  LogSender(std::string path, Send send);
  ~LogSender();  // sends what is there, unless that fails

 private:
  void Work();
  absl::Status SendNew();

  const std::string path_;
  const Send send_;
  size_t sent_ = 0;  // bytes of the file
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace outboard::worker
