// A gateway and workers of the benchmark's own, as `outboard up` starts them, and a key for them.
#pragma once

#include <sys/types.h>

#include <string>

namespace outboard::bench {

class Cloud {
 public:
  // Exits with a message where it cannot be started.
  explicit Cloud(int workers);
  ~Cloud();  // ends it and removes its folder
  Cloud(const Cloud&) = delete;
  Cloud& operator=(const Cloud&) = delete;

  const std::string& target() const { return target_; }
  const std::string& key() const { return key_; }

 private:
  std::string folder_, target_, key_;
  pid_t pid_ = -1;
};

// A program that is built beside this one.
std::string Beside(const std::string& name);
// What a command prints; exits with a message where it fails.
std::string OutputOf(const std::string& command);

}  // namespace outboard::bench
