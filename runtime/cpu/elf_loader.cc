#include "runtime/cpu/elf_loader.h"

#include <elf.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"

namespace outboard::runtime {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kSlotBytes = 16;  // a jump (mov rax, imm64; jmp rax) or an address

struct Callable {
  std::string_view name;
  void* address;
};

// What a kernel may call: mathematics without side effects, and what LLVM calls on its own account.
void* CallableNamed(std::string_view name) {
  static const Callable kCallables[] = {
      {"exp2f", reinterpret_cast<void*>(static_cast<float (*)(float)>(std::exp2))},
      {"exp2", reinterpret_cast<void*>(static_cast<double (*)(double)>(std::exp2))},
      {"log2f", reinterpret_cast<void*>(static_cast<float (*)(float)>(std::log2))},
      {"log2", reinterpret_cast<void*>(static_cast<double (*)(double)>(std::log2))},
      {"sinf", reinterpret_cast<void*>(static_cast<float (*)(float)>(std::sin))},
      {"sin", reinterpret_cast<void*>(static_cast<double (*)(double)>(std::sin))},
      {"fmaf", reinterpret_cast<void*>(static_cast<float (*)(float, float, float)>(std::fma))},
      {"fma", reinterpret_cast<void*>(static_cast<double (*)(double, double, double)>(std::fma))},
      {"truncf", reinterpret_cast<void*>(static_cast<float (*)(float)>(std::trunc))},
      {"trunc", reinterpret_cast<void*>(static_cast<double (*)(double)>(std::trunc))},
      {"memcpy", reinterpret_cast<void*>(&std::memcpy)},
      {"memmove", reinterpret_cast<void*>(&std::memmove)},
      {"memset", reinterpret_cast<void*>(&std::memset)},
  };
  for (const Callable& callable : kCallables)
    if (callable.name == name) return callable.address;
  return nullptr;
}

bool IsGotRelocation(uint32_t type) {
  return type == R_X86_64_GOTPCREL || type == R_X86_64_GOTPCRELX || type == R_X86_64_REX_GOTPCRELX;
}

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("kernel object: ", what));
}

// A view of the file that never reads outside of it.
class Image {
 public:
  explicit Image(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  bool Read(uint64_t offset, T* out) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T)) return false;
    std::memcpy(out, bytes_.data() + offset, sizeof(T));
    return true;
  }
  bool Contains(uint64_t offset, uint64_t size) const {
    return offset <= bytes_.size() && size <= bytes_.size() - offset;
  }
  const char* data(uint64_t offset) const { return bytes_.data() + offset; }
  // The zero-terminated string at `offset`; empty where it runs off the end.
  std::string_view String(uint64_t offset) const {
    if (offset >= bytes_.size()) return {};
    const size_t end = bytes_.find('\0', offset);
    return end == std::string_view::npos ? std::string_view{} : bytes_.substr(offset, end - offset);
  }

 private:
  std::string_view bytes_;
};

class Loader {
 public:
  Loader(std::string_view object, const std::string& symbol) : image_(object), symbol_(symbol) {}

  absl::Status ReadSections() {
    Elf64_Ehdr header;
    if (!image_.Read(0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64 || header.e_type != ET_REL)
      return Malformed("is not a relocatable one for x86-64");
    sections_.resize(header.e_shnum);
    places_.resize(header.e_shnum, kNowhere);
    for (size_t i = 0; i < sections_.size(); ++i) {
      Elf64_Shdr& s = sections_[i];
      if (!image_.Read(header.e_shoff + i * sizeof(Elf64_Shdr), &s)) return Malformed("is cut short");
      if (s.sh_type != SHT_NOBITS && !image_.Contains(s.sh_offset, s.sh_size)) return Malformed("is cut short");
      if (s.sh_size > (uint64_t{1} << 30)) return Malformed("has a section of over 1 GiB");
      if (IsLoaded(s)) {
        const uint64_t alignment = std::max<uint64_t>(s.sh_addralign, 16);
        size_ = (size_ + alignment - 1) / alignment * alignment;
        places_[i] = size_;
        size_ += s.sh_size;
      }
      if (s.sh_type == SHT_RELA) slots_max_ += s.sh_size / sizeof(Elf64_Rela);
    }
    size_ = (size_ + kSlotBytes - 1) / kSlotBytes * kSlotBytes;
    next_slot_ = size_;
    size_ = (size_ + slots_max_ * kSlotBytes + kPage - 1) / kPage * kPage;
    return absl::OkStatus();
  }

  absl::Status Place(char* base) {
    base_ = base;
    for (size_t i = 0; i < sections_.size(); ++i)
      if (places_[i] != kNowhere && sections_[i].sh_type != SHT_NOBITS)
        std::memcpy(base_ + places_[i], image_.data(sections_[i].sh_offset), sections_[i].sh_size);
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type == SHT_SYMTAB) FindEntry(section);
      if (section.sh_type != SHT_RELA || section.sh_info >= sections_.size() || places_[section.sh_info] == kNowhere)
        continue;
      for (uint64_t at = 0; at + sizeof(Elf64_Rela) <= section.sh_size; at += sizeof(Elf64_Rela))
        if (absl::Status status = Relocate(section, at); !status.ok()) return status;
    }
    if (entry_ == nullptr) return absl::NotFoundError(absl::StrCat("kernel object: no symbol ", symbol_));
    return absl::OkStatus();
  }

  size_t size() const { return size_; }
  void* entry() const { return entry_; }

 private:
  static constexpr uint64_t kNowhere = std::numeric_limits<uint64_t>::max();

  // Unwind tables are of no use: kernels do not throw.
  bool IsLoaded(const Elf64_Shdr& s) const {
    return (s.sh_flags & SHF_ALLOC) != 0 && s.sh_type != SHT_X86_64_UNWIND &&
           image_.String(sections_offset_of_names() + s.sh_name) != ".eh_frame";
  }
  uint64_t sections_offset_of_names() const {
    Elf64_Ehdr header;
    Elf64_Shdr names;
    if (!image_.Read(0, &header) ||
        !image_.Read(header.e_shoff + header.e_shstrndx * sizeof(Elf64_Shdr), &names))
      return 0;
    return names.sh_offset;
  }

  std::string_view NameOf(const Elf64_Shdr& symbols, const Elf64_Sym& symbol) const {
    if (symbols.sh_link >= sections_.size()) return {};
    return image_.String(sections_[symbols.sh_link].sh_offset + symbol.st_name);
  }

  void FindEntry(const Elf64_Shdr& symbols) {
    Elf64_Sym symbol;
    for (uint64_t at = 0; at + sizeof(symbol) <= symbols.sh_size; at += sizeof(symbol))
      if (image_.Read(symbols.sh_offset + at, &symbol) && NameOf(symbols, symbol) == symbol_ &&
          symbol.st_shndx < sections_.size() && places_[symbol.st_shndx] != kNowhere &&
          symbol.st_value < sections_[symbol.st_shndx].sh_size)
        entry_ = base_ + places_[symbol.st_shndx] + symbol.st_value;
  }

  // Room for an address or a jump; there is one for each relocation.
  char* NewSlot(const void* address, bool jump) {
    char* const slot = base_ + next_slot_;
    next_slot_ += kSlotBytes;
    if (!jump) {
      std::memcpy(slot, &address, sizeof(address));
      return slot;
    }
    const unsigned char code[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
    std::memcpy(slot, code, sizeof(code));
    std::memcpy(slot + 2, &address, sizeof(address));
    return slot;
  }

  absl::Status Relocate(const Elf64_Shdr& section, uint64_t at) {
    Elf64_Rela relocation;
    Elf64_Sym symbol;
    if (section.sh_link >= sections_.size()) return Malformed("a relocation has no symbols");
    const Elf64_Shdr& symbols = sections_[section.sh_link];
    if (!image_.Read(section.sh_offset + at, &relocation) ||
        !image_.Read(symbols.sh_offset + ELF64_R_SYM(relocation.r_info) * sizeof(symbol), &symbol))
      return Malformed("is cut short");
    const auto type = static_cast<uint32_t>(ELF64_R_TYPE(relocation.r_info));
    const uint64_t width = type == R_X86_64_64 || type == R_X86_64_PC64 ? 8 : 4;
    if (relocation.r_offset > sections_[section.sh_info].sh_size ||
        sections_[section.sh_info].sh_size - relocation.r_offset < width)
      return Malformed("a relocation lies outside of its section");

    const void* target;
    if (symbol.st_shndx == SHN_UNDEF) {
      const std::string_view name = NameOf(symbols, symbol);
      const void* const callable = CallableNamed(name);
      if (callable == nullptr)
        return absl::NotFoundError(absl::StrCat("kernel object: calls ", std::string(name), ", which kernels may not"));
      if (type == R_X86_64_64)
        target = callable;
      else
        target = NewSlot(callable, /*jump=*/!IsGotRelocation(type));
    } else {
      if (symbol.st_shndx >= sections_.size() || places_[symbol.st_shndx] == kNowhere ||
          symbol.st_value > sections_[symbol.st_shndx].sh_size)
        return Malformed("a symbol lies outside of its section");
      target = base_ + places_[symbol.st_shndx] + symbol.st_value;
      if (IsGotRelocation(type)) target = NewSlot(target, /*jump=*/false);
    }

    char* const place = base_ + places_[section.sh_info] + relocation.r_offset;
    const int64_t value = reinterpret_cast<int64_t>(target) + relocation.r_addend;
    const int64_t relative = value - reinterpret_cast<int64_t>(place);
    switch (type) {
      case R_X86_64_64: std::memcpy(place, &value, 8); return absl::OkStatus();
      case R_X86_64_PC64: std::memcpy(place, &relative, 8); return absl::OkStatus();
      case R_X86_64_PC32:
      case R_X86_64_PLT32:
      case R_X86_64_GOTPCREL:
      case R_X86_64_GOTPCRELX:
      case R_X86_64_REX_GOTPCRELX: {
        const auto narrow = static_cast<int32_t>(relative);
        if (narrow != relative) return Malformed("a relocation reaches too far");
        std::memcpy(place, &narrow, 4);
        return absl::OkStatus();
      }
      default: return Malformed(absl::StrCat("relocation type ", type, " is not supported"));
    }
  }

  Image image_;
  const std::string& symbol_;
  std::vector<Elf64_Shdr> sections_;
  std::vector<uint64_t> places_;  // offsets in the mapping
  uint64_t size_ = 0;
  uint64_t slots_max_ = 0;
  uint64_t next_slot_ = 0;
  char* base_ = nullptr;
  void* entry_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedObject>> LoadedObject::Load(std::string_view object, const std::string& symbol) {
  Loader loader(object, symbol);
  if (absl::Status status = loader.ReadSections(); !status.ok()) return status;
  auto loaded = std::unique_ptr<LoadedObject>(new LoadedObject);
  void* const memory =
      mmap(nullptr, loader.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return absl::ResourceExhaustedError(absl::StrCat("no memory for a kernel of ", loader.size(), " bytes"));
  loaded->memory_ = memory;
  loaded->bytes_ = loader.size();
  if (absl::Status status = loader.Place(static_cast<char*>(memory)); !status.ok()) return status;
  if (mprotect(memory, loader.size(), PROT_READ | PROT_EXEC) != 0)
    return absl::InternalError("kernel object: cannot be made executable");
  loaded->function_ = reinterpret_cast<KernelFunction>(loader.entry());
  return loaded;
}

LoadedObject::~LoadedObject() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

}  // namespace outboard::runtime
