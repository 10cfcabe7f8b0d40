// A link from a client's session to an executor core in this process: the whole path without a
// gateway, processes or gRPC. For tests and for the benchmarks' in-process peer.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "client/session/link/link.h"
#include "worker/executor/executor_core.h"

namespace outboard::test {

class ExecutorLink final : public session::Link {
 public:
  explicit ExecutorLink(std::unique_ptr<worker::Engine> engine)
      : engine_(std::move(engine)), core_(engine_.get(), {"in process", "in process"}) {}
  ~ExecutorLink() override { Finish(); }

  void Start(session::LinkListener* listener) override {
    listener_ = listener;
    thread_ = std::thread([this] { Work(); });
  }

  void Send(proto::ClientFrame frame) override {
    std::lock_guard lock(mutex_);
    bytes_up_ += frame.ByteSizeLong();
    frames_.push_back(std::move(frame));
    wake_.notify_one();
  }

  // Runs `work` on this link's thread, which is the engine's, once there are no frames, and waits
  // until it is done. Between Send of the first frame and Finish.
  void Between(std::function<void()> work) {
    std::unique_lock lock(mutex_);
    work_ = std::move(work);
    wake_.notify_one();
    worked_.wait(lock, [&] { return work_ == nullptr; });
  }

  void Finish() override {
    {
      std::lock_guard lock(mutex_);
      finished_ = true;
      wake_.notify_one();
    }
    if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
  }

  uint64_t bytes_up() const override { return bytes_up_; }
  uint64_t bytes_down() const override { return bytes_down_; }

 private:
  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return finished_ || !frames_.empty() || work_ != nullptr; });
      if (frames_.empty() && work_ != nullptr) {
        const std::function<void()> work = work_;
        lock.unlock();
        work();
        lock.lock();
        work_ = nullptr;
        worked_.notify_one();
        continue;
      }
      if (frames_.empty()) break;
      proto::ClientFrame frame = std::move(frames_.front());
      frames_.pop_front();
      lock.unlock();
      // What a gateway does: it names the session and counts its epochs.
      if (frame.items_size() > 0 && frame.items(0).has_open()) frame.set_epoch(++epoch_);
      for (proto::ServerFrame& answer : core_.On(std::move(frame))) {
        bytes_down_ += answer.ByteSizeLong();
        for (proto::ServerItem& item : *answer.mutable_items())
          if (item.has_opened()) {
            item.mutable_opened()->set_session_id(std::string(16, '\1'));
            item.mutable_opened()->set_resume_token(std::string(16, '\2'));
          }
        listener_->OnFrame(std::move(answer));
      }
      lock.lock();
      if (core_.ended()) break;
    }
    lock.unlock();
    listener_->OnEnd(absl::OkStatus());
  }

  std::unique_ptr<worker::Engine> engine_;
  worker::ExecutorCore core_;
  session::LinkListener* listener_ = nullptr;
  uint64_t epoch_ = 0;
  std::atomic<uint64_t> bytes_up_{0}, bytes_down_{0};
  std::mutex mutex_;
  std::condition_variable wake_, worked_;
  std::function<void()> work_;  // null: nothing waits
  std::deque<proto::ClientFrame> frames_;
  bool finished_ = false;
  std::thread thread_;
};

}  // namespace outboard::test
