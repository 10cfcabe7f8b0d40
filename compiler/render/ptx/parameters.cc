// The parameters of a kernel: addresses of buffers, of the VARs, and the maps of tensors.
#include "absl/strings/str_cat.h"
#include "compiler/render/ptx/ptx_printer.h"

namespace outboard::render {
namespace {

constexpr int64_t kMapBytes = 128, kMapAlign = 64, kAddressBytes = 8;

}  // namespace

std::string PtxPrinter::Parameters() const {
  std::string text;
  const auto add = [&](const auto&... parts) {
    absl::StrAppend(&text, text.empty() ? "" : ",", "\n\t.param ", parts...);
  };
  if (program_.copies > 1) {
    const auto maps = static_cast<int64_t>(program_.maps.size());
    if (program_.buffer_count > 0)
      add(".align ", kAddressBytes, " .b8 buffers[",
          program_.copies * program_.buffer_count * kAddressBytes, "]");
    if (program_.reads_vars()) add(".u64 vars");
    if (maps > 0) add(".align ", kMapAlign, " .b8 maps[", program_.copies * maps * kMapBytes, "]");
    return text;
  }
  for (int slot = 0; slot < program_.buffer_count; ++slot) add(".u64 buffer", slot);
  if (program_.reads_vars()) add(".u64 vars");
  for (size_t map = 0; map < program_.maps.size(); ++map)
    add(".align ", kMapAlign, " .b8 map", map, "[", kMapBytes, "]");
  return text;
}

void PtxPrinter::LoadParameters() {
  const auto load = [&](const std::string& name) {
    const PtxOperand address = text_.New(Width::k64);
    text_.Line("ld.param.b64 ", address, ", [", name, "]");
    return address;
  };
  if (program_.copies > 1) return LoadParametersOfCopy();
  for (int slot = 0; slot < program_.buffer_count; ++slot)
    buffers_.push_back(load(absl::StrCat("buffer", slot)));
  for (size_t map = 0; map < program_.maps.size(); ++map) {
    const PtxOperand place = text_.New(Width::k64);
    text_.Line("mov.b64 ", place, ", map", map);
    maps_.push_back(text_.Value("cvta.param.u64", Width::k64, {place}));
  }
}

// Of a kernel in several copies (compiler/copies.h): those of the copy that the block's number
// along the grid's third axis says. They are read where they lie.
void PtxPrinter::LoadParametersOfCopy() {
  const PtxOperand copy = text_.New(Width::k32);
  text_.Line("mov.u32 ", copy, ", %ctaid.z");
  const auto first_of_copy = [&](const char* name, int64_t bytes) {
    const PtxOperand table = text_.New(Width::k64);
    text_.Line("mov.b64 ", table, ", ", name);
    return text_.Value("mad.wide.u32", Width::k64, {copy, Integer(bytes), table});
  };
  if (program_.buffer_count > 0) {
    const PtxOperand first = first_of_copy("buffers", program_.buffer_count * kAddressBytes);
    for (int slot = 0; slot < program_.buffer_count; ++slot) {
      buffers_.push_back(text_.New(Width::k64));
      text_.Line("ld.param.b64 ", buffers_.back(), ", ", Address{first, slot * kAddressBytes});
    }
  }
  const auto maps = static_cast<int64_t>(program_.maps.size());
  if (maps == 0) return;
  const PtxOperand first =
      text_.Value("cvta.param.u64", Width::k64, {first_of_copy("maps", maps * kMapBytes)});
  maps_.push_back(first);
  for (int64_t map = 1; map < maps; ++map)
    maps_.push_back(text_.Value("add.s64", Width::k64, {first, Integer(map * kMapBytes)}));
}

}  // namespace outboard::render
