#include "gateway/accounts/key_rights.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace outboard::gateway {

namespace {

constexpr struct {
  KeyScope scope;
  const char* word;
} kWords[] = {{KeyScope::kRun, "run"},
              {KeyScope::kUsage, "usage"},
              {KeyScope::kStore, "store"},
              {KeyScope::kAdmin, "admin"}};

}  // namespace

absl::StatusOr<Scopes> Scopes::Parse(std::string_view text) {
  Scopes scopes;
  for (const absl::string_view word :
       absl::StrSplit(absl::string_view(text.data(), text.size()), ',')) {
    const auto known = std::find_if(std::begin(kWords), std::end(kWords),
                                    [&](const auto& entry) { return word == entry.word; });
    if (known == std::end(kWords)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a key's scopes are words of ", All().ToString(), ", with commas between them"));
    }
    scopes.bits_ |= static_cast<uint8_t>(known->scope);
  }
  return scopes;
}

std::vector<std::string> Scopes::Words() const {
  std::vector<std::string> words;
  for (const auto& [scope, word] : kWords)
    if (HasAny(scope)) words.push_back(word);
  return words;
}

std::string Scopes::ToString() const { return absl::StrJoin(Words(), ","); }

absl::Status CheckScope(Scopes held, Scopes any_of) {
  if (held.HasAny(any_of)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "this API key lacks the scope ", absl::StrJoin(any_of.Words(), " or "),
      ": use a key that has it (made by `outboard key create --scope ", any_of.ToString(), "`)"));
}

absl::Status CheckNoWider(const KeyRights& maker, const KeyRights& wanted) {
  if (!maker.scopes.Covers(wanted.scopes)) {
    return absl::PermissionDeniedError(absl::StrCat(
        "a key makes none with more rights than its own, and this one lacks the scope ",
        wanted.scopes.Without(maker.scopes).ToString()));
  }
  if (maker.expires_at.has_value() &&
      (!wanted.expires_at.has_value() || *wanted.expires_at > *maker.expires_at)) {
    return absl::PermissionDeniedError(
        absl::StrCat("a key makes none that expires later than it does, at ",
                     gateway::ToString(*maker.expires_at)));
  }
  const auto within = [&](const AddressRange& range) {
    return std::any_of(maker.from.begin(), maker.from.end(),
                       [&](const AddressRange& own) { return own.Covers(range); });
  };
  if (!maker.from.empty() &&
      (wanted.from.empty() || !std::all_of(wanted.from.begin(), wanted.from.end(), within))) {
    return absl::PermissionDeniedError(absl::StrCat(
        "a key makes none for addresses outside its own ranges, which are ", ToString(maker.from)));
  }
  return absl::OkStatus();
}

std::string ToString(const std::vector<AddressRange>& ranges) {
  return absl::StrJoin(ranges, ",", [](std::string* out, const AddressRange& range) {
    absl::StrAppend(out, range.ToString());
  });
}

absl::StatusOr<std::vector<AddressRange>> ParseRanges(std::string_view text) {
  std::vector<AddressRange> ranges;
  if (text.empty()) return ranges;
  for (const absl::string_view part :
       absl::StrSplit(absl::string_view(text.data(), text.size()), ',')) {
    OB_ASSIGN_OR_RETURN(AddressRange range,
                        AddressRange::Parse(std::string_view(part.data(), part.size())));
    ranges.push_back(range);
  }
  return ranges;
}

}  // namespace outboard::gateway
