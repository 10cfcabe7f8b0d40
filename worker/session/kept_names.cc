#include "worker/session/kept_names.h"

#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace outboard::worker {

absl::Status KeptNames::Set(
    const google::protobuf::RepeatedPtrField<proto::Keep::Entry>& entries) {
  std::map<uint64_t, Name> names;
  std::set<std::string_view> texts;
  for (const proto::Keep::Entry& entry : entries) {
    if (entry.id() == 0) return absl::InvalidArgumentError("Keep: an id is not 0");
    if (!names.try_emplace(entry.id(), Name{entry.name(), entry.handle()}).second)
      return absl::InvalidArgumentError(absl::StrCat("Keep: two entries have the id ", entry.id()));
    if (!texts.insert(entry.name()).second)
      return absl::InvalidArgumentError(absl::StrCat("Keep: two entries are named ", entry.name()));
  }
  names_ = std::move(names);
  return absl::OkStatus();
}

absl::Status KeptNames::Check(const proto::Run& run) const {
  for (const proto::Rekept& rekept : run.rekept()) {
    if (rekept.output() >= static_cast<uint32_t>(run.outputs_size()))
      return absl::InvalidArgumentError(
          absl::StrCat("keeps output ", rekept.output(), " of ", run.outputs_size()));
    if (!names_.contains(rekept.id()))
      return absl::InvalidArgumentError(
          absl::StrCat("no array is kept with the id ", rekept.id()));
  }
  return absl::OkStatus();
}

void KeptNames::Follow(const proto::Run& run) {
  for (const proto::Rekept& rekept : run.rekept()) {
    const auto name = names_.find(rekept.id());
    if (name != names_.end() && rekept.output() < static_cast<uint32_t>(run.outputs_size()))
      name->second.handle = run.outputs(static_cast<int>(rekept.output()));
  }
}

void KeptNames::AddTo(proto::SessionSnapshot& snapshot) const {
  for (const auto& [id, name] : names_) {
    proto::Keep::Entry& entry = *snapshot.add_names();
    entry.set_id(id);
    entry.set_name(name.text);
    entry.set_handle(name.handle);
  }
}

}  // namespace outboard::worker
