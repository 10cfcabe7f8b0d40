#include "gateway/accounts/secret.h"

#include <openssl/crypto.h>

namespace outboard::gateway {

// OPENSSL_cleanse is not optimised away, unlike a memset just before an object's end of life.
void Secret::Wipe() {
  OPENSSL_cleanse(text_.data(), text_.size());
  text_.clear();
}

Secret& Secret::operator=(const Secret& other) {
  if (this != &other) {
    Wipe();
    text_ = other.text_;
  }
  return *this;
}

// Moving a short string copies it, so the source's bytes are wiped too.
Secret::Secret(Secret&& other) noexcept : text_(std::move(other.text_)) { other.Wipe(); }

Secret& Secret::operator=(Secret&& other) noexcept {
  if (this != &other) {
    Wipe();
    text_ = std::move(other.text_);
    other.Wipe();
  }
  return *this;
}

Secret::~Secret() { Wipe(); }

}  // namespace outboard::gateway
