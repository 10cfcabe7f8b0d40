// What the boot server serves of a gateway's data folder, where anybody may ask for anything at any
// time: each image and each driver is checked when somebody first asks for it and when its files
// change on the disk, and not because it is asked for again. Signatures, which are small, come
// first.
//
// Threads: one each; ServedDrivers has another of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "cli/node/boot_script.h"

namespace outboard::cli {

// Images that were added (image_store.h).
class ServedImages {
 public:
  explicit ServedImages(std::string data_folder) : data_folder_(std::move(data_folder)) {}

  // "sha256:..."; null: there is none, or it is not what it should be, and a line has said so.
  const BootImage* Find(const std::string& digest);
  int checks() const { return checks_; }

 private:
  struct Checked {
    std::string stamp;  // of the files that were looked at
    std::optional<BootImage> image;
  };

  const std::string data_folder_;
  std::map<std::string, Checked> checked_;
  int checks_ = 0;
};

// Drivers that were added. One is served by its name, which is its digest, as soon as its signature
// is checked: it may have a GiB. Its bytes are read beside that, once; where they are others, it is
// not served any more. Who fetches it believes the digest alone.
class ServedDrivers {
 public:
  explicit ServedDrivers(std::string data_folder);
  ~ServedDrivers() = default;  // ends what is being read

  // 64 hex digits; nothing: there is none, or it is not what it should be, and a line has said so.
  std::optional<BootFile> Find(const std::string& digest);
  int checks() const { return checks_; }  // of signatures
  int reads() const { return reads_; }    // that have ended

 private:
  struct Checked {
    std::string stamp;
    std::optional<BootFile> file;
  };
  void ReadAll(const std::stop_token& stop);

  const std::string data_folder_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::map<std::string, Checked> checked_;  // no more than there are files
  std::deque<std::string> to_read_;
  int checks_ = 0;
  std::atomic<int> reads_{0};
  std::jthread thread_;  // last: it uses the others
};

}  // namespace outboard::cli
