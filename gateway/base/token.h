// Tokens that authenticate their holder: a client's resume token and an executor's attach token.
// Each is sent once and stored only as a hash, so neither the gateway's memory nor its database
// holds a usable token.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gateway/core/events.h"
#include "gateway/ledger/ids.h"
#include "wire/merkle.h"

namespace outboard::gateway {

inline std::string BytesOf(const Token& token) { return SessionId{token.hi, token.lo}.Bytes(); }
inline std::optional<Token> TokenFromBytes(std::string_view bytes) {
  const auto id = SessionId::FromBytes(bytes);
  return id ? std::optional<Token>(Token{id->hi, id->lo}) : std::nullopt;
}

// 128 bits of SHA-256: as hard to reverse as the token is to guess.
inline Token HashOf(const Token& token) {
  const wire::Hash hash = Sha256("outboard token" + BytesOf(token));
  return *TokenFromBytes(wire::AsBytes(hash).substr(0, 16));
}

}  // namespace outboard::gateway
