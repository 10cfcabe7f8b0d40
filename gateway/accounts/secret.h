// A string that must not be logged, such as an API key: streams print it as ***, and its bytes are
// wiped when it is destroyed or overwritten.
#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <utility>

namespace outboard::gateway {

class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string text) : text_(std::move(text)) {}
  Secret(const Secret&) = default;
  Secret& operator=(const Secret& other);
  Secret(Secret&& other) noexcept;
  Secret& operator=(Secret&& other) noexcept;
  ~Secret();

  // Returns the text. This is the only access to it; a reviewer searches for this name.
  std::string_view Reveal() const { return text_; }

  friend std::ostream& operator<<(std::ostream& out, const Secret&) { return out << "***"; }

 private:
  void Wipe();
  std::string text_;
};

}  // namespace outboard::gateway
