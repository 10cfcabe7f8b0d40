// The shape of the tree: folders that can be read in one sitting, a README in each, one meaning for
// each type name and each numbered invariant, and lines that fit a screen.
//
// Each rule has a list of today's exceptions. A list only shrinks: an exception that is no longer
// needed fails the test too.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>

#include "tests/layers/sources.h"
#include "tests/support/paths.h"

namespace outboard::layers {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;

constexpr int kFilesMax = 25;
constexpr size_t kColumnsMax = 100;

std::string Folder(const std::string& path) { return path.substr(0, path.rfind('/')); }

std::string Joined(const Strings& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

// ---- folders

// Folders with more than kFilesMax source files, tests aside.
Strings WideFolders(const Strings& paths) {
  std::map<std::string, int> files;
  for (const std::string& path : paths) ++files[Folder(path)];
  Strings wide;
  for (const auto& [folder, count] : files)
    if (count > kFilesMax)
      wide.push_back(folder + " has " + std::to_string(count) + " source files, at most " +
                     std::to_string(kFilesMax) + ": split it by what its files do");
  return wide;
}

bool IsSource(const fs::path& path) {
  static const std::set<std::string> kExtensions = {".h", ".cc", ".cpp", ".py", ".proto"};
  return kExtensions.count(path.extension().string()) != 0;
}

// Paths of all source files outside tests, from the repository's root.
Strings SourcePaths() {
  const fs::path root = test::kSourceFolder;
  Strings paths;
  for (const std::string& folder : kFolders) {
    if (folder == "tests" || !fs::exists(root / folder)) continue;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder))
      if (entry.is_regular_file() && IsSource(entry.path()) &&
          entry.path().string().find("__pycache__") == std::string::npos)
        paths.push_back(fs::relative(entry.path(), root).generic_string());
  }
  return paths;
}

TEST(Structure, WideFolder_Fires) {
  Strings paths;
  for (int i = 0; i < kFilesMax; ++i) paths.push_back("client/a/f" + std::to_string(i) + ".cc");
  EXPECT_TRUE(WideFolders(paths).empty());
  paths.push_back("client/a/one_more.h");
  EXPECT_EQ(WideFolders(paths).size(), 1u);
}

TEST(Structure, Folders_AreNarrow) {
  const Strings paths = SourcePaths();
  ASSERT_GT(paths.size(), 400u) << "looked in " << test::kSourceFolder;
  EXPECT_EQ(Joined(WideFolders(paths)), "");
}

TEST(Structure, Folders_HaveReadmes) {
  const fs::path root = test::kSourceFolder;
  std::set<std::string> folders;
  for (const std::string& path : SourcePaths()) folders.insert(Folder(path));
  Strings missing;
  for (const std::string& folder : folders) {
    std::ifstream file(root / folder / "README.md");
    std::stringstream text;
    text << file.rdbuf();
    for (const char* part : {"**May include:**", "**Start with:**", "**To add something:**"})
      if (text.str().find(part) == std::string::npos)
        missing.push_back(folder + "/README.md lacks " + part);
  }
  EXPECT_EQ(Joined(missing), "");
}

// The paths that the READMEs' words let a folder include: those in backticks on the line "May
// include", and by "as `x/`" or "what `x/` may" those of another folder's README. A folder's own
// path is always among them. Empty: everything. `read` gives a folder's README.
using Readmes = std::function<std::string(const std::string& folder)>;
Strings MayInclude(const std::string& folder, const Readmes& read, int depth = 0) {
  static const std::regex kOther("\\b(?:as|what|that) `([a-z_/]+)/`");
  static const std::regex kPath("`([a-z_]+[A-Za-z0-9_./]*)`");
  constexpr std::string_view kBegin = "**May include:**";
  const std::string text = read(folder);
  const size_t begin = text.find(kBegin);
  if (begin == std::string::npos) return {folder + "/"};
  std::string line = text.substr(begin, text.find("\n\n", begin) - begin);
  std::replace(line.begin(), line.end(), '\n', ' ');
  for (const char* end : {". ", "; not "}) line = line.substr(0, line.find(end));
  Strings paths = {folder + "/"};
  if (std::smatch other; std::regex_search(line, other, kOther) && depth < 4) {
    const Strings more = MayInclude(other[1], read, depth + 1);
    if (more.empty()) return {};
    paths.insert(paths.end(), more.begin(), more.end());
  }
  bool names_some = false;
  for (std::sregex_iterator m(line.begin(), line.end(), kPath), end; m != end; ++m) {
    std::string path = (*m)[1];
    names_some = true;
    if (path.back() != '/' && path.find('.') == std::string::npos) path += '/';
    paths.push_back(path);
  }
  if (!names_some && line.find("everything") != std::string::npos) return {};
  return paths;
}

// Includes of a file that its folder's README does not name.
Strings NotInReadme(const Source& source, const Readmes& read) {
  static const std::regex kInclude("^\\s*#\\s*include\\s*\"([a-z_]+)(/[^\"]+)\"");
  const Strings may = MayInclude(Folder(source.path), read);
  Strings found;
  std::istringstream lines(source.text);
  for (std::string line; !may.empty() && std::getline(lines, line);) {
    std::smatch match;
    if (!std::regex_search(line, match, kInclude)) continue;
    if (std::find(kFolders.begin(), kFolders.end(), match[1]) == kFolders.end()) continue;
    const std::string header = match[1].str() + match[2].str();
    if (std::none_of(may.begin(), may.end(),
                     [&](const std::string& path) { return StartsWith(header, path); }))
      found.push_back(source.path + " includes " + header + ", which the line \"May include\" of " +
                      Folder(source.path) + "/README.md does not name");
  }
  return found;
}

// Of a README with a table of its folders: those that it lacks, and those that are not there.
Strings WrongRows(const std::string& folder, const std::string& text,
                  const std::set<std::string>& subfolders) {
  static const std::regex kRow("(?:^|\n)\\| `([a-z0-9_]+)/` \\|");
  std::set<std::string> rows;
  for (std::sregex_iterator m(text.begin(), text.end(), kRow), end; m != end; ++m)
    rows.insert((*m)[1]);
  if (rows.empty()) return {};
  Strings wrong;
  for (const std::string& name : subfolders)
    if (rows.count(name) == 0) wrong.push_back(folder + "/README.md has no row for " + name + "/");
  for (const std::string& name : rows)
    if (subfolders.count(name) == 0)
      wrong.push_back(folder + "/README.md has a row for " + name + "/, which is not there");
  return wrong;
}

std::string ReadmeOf(const std::string& folder) {
  std::ifstream file(fs::path(test::kSourceFolder) / folder / "README.md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Structure, IncludeThatAReadmeDoesNotName_Fires) {
  const Readmes read = [](const std::string& folder) -> std::string {
    if (folder == "client/a")
      return "**May include:** `base/`,\n`wire/limits.h`; not `proto/`.\n\n";
    if (folder == "client/b") return "**May include:** as `client/a/`.\n\n";
    if (folder == "cli/c") return "**May include:** everything.\n\n";
    return "";
  };
  const struct {
    std::string path, header;
    bool wrong;
  } cases[] = {{"client/a/x.cc", "base/check.h", false},
               {"client/a/x.cc", "wire/limits.h", false},
               {"client/a/x.cc", "wire/framing.h", true},
               {"client/a/x.cc", "proto/c.pb.h", true},
               {"client/a/x.cc", "client/a/y.h", false},
               {"client/a/x.cc", "client/b/y.h", true},
               {"client/a/x.cc", "google/any.h", false},
               {"client/b/x.cc", "base/check.h", false},
               {"client/b/x.cc", "client/a/y.h", false},
               {"client/b/x.cc", "wire/framing.h", true},
               {"cli/c/x.cc", "gateway/core/core.h", false}};
  for (const auto& c : cases)
    EXPECT_EQ(!NotInReadme({c.path, "#include \"" + c.header + "\"\n"}, read).empty(), c.wrong)
        << c.path << " " << c.header;
}

TEST(Structure, WrongRow_Fires) {
  const std::string table = "| folder |\n| --- |\n| `a/` | this |\n| `b/` | that |\n";
  EXPECT_TRUE(WrongRows("x", table, {"a", "b"}).empty());
  EXPECT_EQ(WrongRows("x", table, {"a", "b", "c"}).size(), 1u);
  EXPECT_EQ(WrongRows("x", table, {"a"}).size(), 1u);
  EXPECT_TRUE(WrongRows("x", "no table", {"a"}).empty());
}

TEST(Structure, Readmes_NameWhatTheirFilesInclude) {
  std::string all;
  for (const Source& source : AllSources())
    if (!StartsWith(source.path, "tests/")) all += Joined(NotInReadme(source, ReadmeOf));
  EXPECT_EQ(all, "");
}

TEST(Structure, Readmes_NameTheirFolders) {
  std::map<std::string, std::set<std::string>> subfolders;
  for (const std::string& path : SourcePaths())
    for (std::string at = Folder(path); at.find('/') != std::string::npos; at = Folder(at))
      subfolders[Folder(at)].insert(at.substr(at.rfind('/') + 1));
  int tables = 0;
  std::string all;
  for (const auto& [folder, names] : subfolders) {
    const std::string text = ReadmeOf(folder);
    tables += text.find("| folder |") != std::string::npos ? 1 : 0;
    all += Joined(WrongRows(folder, text, names));
  }
  EXPECT_EQ(all, "");
  EXPECT_GE(tables, 5);
}

// ---- names

// A type that is defined at the level of a namespace: neither nested nor only declared.
const std::regex kType(
    "^(?:struct|class|enum class|enum) (?:\\[\\[\\w+\\]\\] )?(\\w+)\\b(?!::)[^;(]*\\{");

// Type names that headers define more than once, with where.
Strings RepeatedTypes(const std::vector<Source>& sources) {
  std::map<std::string, std::set<std::string>> where;
  for (const Source& source : sources) {
    if (!EndsWith(source.path, ".h") || StartsWith(source.path, "tests/")) continue;
    std::istringstream lines(source.text);
    for (std::string line; std::getline(lines, line);) {
      std::smatch match;
      if (std::regex_search(line, match, kType)) where[match[1]].insert(source.path);
    }
  }
  Strings repeated;
  for (const auto& [name, paths] : where) {
    if (paths.size() < 2) continue;
    std::string row = name + ":";
    for (const std::string& path : paths) row += " " + path;
    repeated.push_back(row);
  }
  return repeated;
}

TEST(Structure, RepeatedType_Fires) {
  EXPECT_EQ(RepeatedTypes({{"a/a.h", "class A {\n"}, {"b/b.h", "struct A final : B {\n"}}).size(),
            1u);
  EXPECT_TRUE(RepeatedTypes({{"a/a.h", "class A {\n"}, {"b/b.h", "class A;\n"}}).empty());
  EXPECT_TRUE(RepeatedTypes({{"a/a.h", "class A {\n"}, {"b/b.h", "  class A {\n"}}).empty());
  EXPECT_TRUE(RepeatedTypes({{"a/a.h", "class A {\n"}, {"b/b.cc", "class A {\n"}}).empty());
}

TEST(Structure, TypeNames_HaveOneMeaning) {
  EXPECT_EQ(Joined(RepeatedTypes(AllSources())), "")
      << "one name, one meaning: rename one of each pair (docs/glossary.md)";
}

// ---- numbered invariants

// The files whose lists of invariants have each label, as "//   G1  A slot is held by". A label
// that two lists have is wrong: whoever reads "G1" elsewhere must know which list is meant.
using FilesOfLabels = std::map<std::string, std::set<std::string>>;
FilesOfLabels Invariants(const std::vector<Source>& sources) {
  static const std::regex kEntry("^ *//( |   )([A-Z]{1,2}[0-9]{1,2})( {1,2})(?! )(\\w*)");
  static const std::set<std::string> kOfSentences = {"",    "and", "are", "as", "in",
                                                     "is",  "of",  "or",  "to", "with"};
  FilesOfLabels files;
  for (const Source& source : sources) {
    std::istringstream lines(source.text);
    std::string line;
    std::smatch entry;
    while (std::getline(lines, line)) {
      if (!std::regex_search(line, entry, kEntry)) continue;
      // "// L5 and L7 of an entry" is a sentence: in a list the label stands in a column. A label
      // of three letters fills it.
      if (entry[1].length() > 1 || entry[3].length() == 2 ||
          (entry[2].length() > 2 && kOfSentences.count(entry[4]) == 0))
        files[entry[2]].insert(source.path);
    }
  }
  return files;
}

Strings RepeatedInvariants(const std::vector<Source>& sources) {
  Strings repeated;
  for (const auto& [label, where] : Invariants(sources))
    if (where.size() > 1) {
      std::string all = label + " is defined in";
      for (const std::string& path : where) all += " " + path;
      repeated.push_back(all + ": give one of these lists another letter, or two");
    }
  return repeated;
}

TEST(Structure, RepeatedInvariant_Fires) {
  const Source one{"a.cc", "//   G1  A slot.\n//   GX1 A seat.\n"};
  EXPECT_EQ(RepeatedInvariants({one, {"b.h", "//   G1  A relay.\n"}}).size(), 1u);
  EXPECT_EQ(RepeatedInvariants({one, {"b.h", "//   GX1 A relay.\n"}}).size(), 1u);
  EXPECT_EQ(RepeatedInvariants({one, {"b.h", "// G1  A relay.\n"}}).size(), 1u);
  EXPECT_TRUE(RepeatedInvariants({one, {"b.h", "//   G2  A relay.\n"}}).empty());
  EXPECT_EQ(RepeatedInvariants({one, {"b.h", "// GX1 A relay.\n"}}).size(), 1u);
  EXPECT_EQ(RepeatedInvariants({one, {"b.h", "  //   G1  A relay.\n"}}).size(), 1u);
  EXPECT_EQ(RepeatedInvariants({one, {"b.h", "  // GX1 A relay.\n"}}).size(), 1u);
  EXPECT_TRUE(RepeatedInvariants({one, {"b.h", "// G1 of a.cc.\n  // G1\n"}}).empty());
  EXPECT_TRUE(RepeatedInvariants({one, {"b.h", "// GX1 and GX2 of a.cc.\n  // GX1.\n"}}).empty());
}

// Where a comment names invariants of a file, "R6 of gateway/data_path/relay.cc", "E8, E9 and E7 of
// executor_core.cc", "L1 to L9 are the invariants of ledger.h": those that are in no list of such a
// file. Counts the references.
Strings LostInvariants(const std::vector<Source>& sources, int& references) {
  static const std::regex kBreak("\n *// *");
  static const std::regex kNamed(
      "((?:[A-Z]{1,2}[0-9]{1,2}(?:, | and | to ))*[A-Z]{1,2}[0-9]{1,2}) "
      "(?:are the invariants )?(?:of|in) ([a-z0-9_/]+\\.(?:cc|h))\\b");
  static const std::regex kLabel("[A-Z]{1,2}[0-9]{1,2}");
  const FilesOfLabels files = Invariants(sources);
  Strings lost;
  for (const Source& source : sources) {
    const std::string text = std::regex_replace(source.text, kBreak, " ");
    for (std::sregex_iterator m(text.begin(), text.end(), kNamed), end; m != end; ++m) {
      const std::string labels = (*m)[1], file = (*m)[2];
      for (std::sregex_iterator l(labels.begin(), labels.end(), kLabel); l != end; ++l) {
        ++references;
        const auto at = files.find(l->str());
        if (at == files.end() || std::none_of(at->second.begin(), at->second.end(),
                                              [&](const std::string& path) {
                                                return path == file || EndsWith(path, "/" + file);
                                              }))
          lost.push_back(source.path + " names " + l->str() + " of " + file +
                         ", whose list of invariants lacks it");
      }
    }
  }
  return lost;
}

TEST(Structure, LostInvariant_Fires) {
  const Source one{"a/a.cc", "//   G1  A slot.\n//   G2  A seat.\n"};
  int references = 0;
  EXPECT_TRUE(LostInvariants({one, {"b.h", "// Held (G1 of a/a.cc).\n"}}, references).empty());
  EXPECT_TRUE(LostInvariants({one, {"b.h", "  // Held: G1 and\n  // G2 of a.cc.\n"}}, references)
                  .empty());
  EXPECT_EQ(references, 3);
  EXPECT_EQ(LostInvariants({one, {"b.h", "// G1, G3 of a.cc.\n"}}, references).size(), 1u);
  const Source sentence{"b.h", "// G1 to G9\n// are the invariants of a.cc."};
  EXPECT_EQ(LostInvariants({one, sentence}, references).size(), 1u);
  EXPECT_EQ(LostInvariants({one, {"b.h", "// G1 of b.cc.\n"}}, references).size(), 1u);
}

TEST(Structure, InvariantsThatCommentsName_AreThere) {
  std::vector<Source> sources = AllSources();
  // This file's are examples.
  sources.erase(std::remove_if(sources.begin(), sources.end(),
                               [](const Source& source) {
                                 return EndsWith(source.path, "layers/structure_test.cc");
                               }),
                sources.end());
  int references = 0;
  EXPECT_EQ(Joined(LostInvariants(sources, references)), "");
  EXPECT_GT(references, 15);
}

TEST(Structure, InvariantNumbers_HaveOneMeaning) {
  EXPECT_EQ(Joined(RepeatedInvariants(AllSources())), "");
}

// ---- lines

// Characters, not bytes: continuation bytes of UTF-8 do not count.
size_t Columns(const std::string& line) {
  size_t columns = 0;
  for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return columns;
}

Strings LongLines(const Source& source) {
  Strings found;
  std::istringstream lines(source.text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (Columns(line) > kColumnsMax)
      found.push_back(source.path + ":" + std::to_string(number) + ": " +
                      std::to_string(Columns(line)) + " columns, at most " +
                      std::to_string(kColumnsMax));
  }
  return found;
}

TEST(Structure, LongLine_Fires) {
  EXPECT_TRUE(LongLines({"a.h", std::string(kColumnsMax, 'x')}).empty());
  EXPECT_EQ(LongLines({"a.h", std::string(kColumnsMax + 1, 'x')}).size(), 1u);
  std::string arrows;
  for (size_t i = 0; i < kColumnsMax; ++i) arrows += "─";
  EXPECT_TRUE(LongLines({"a.h", arrows}).empty());
}

TEST(Structure, Lines_FitAScreen) {
  std::string all;
  for (const Source& source : AllSources())
    all += Joined(LongLines(source));
  EXPECT_EQ(all, "");
}

}  // namespace
}  // namespace outboard::layers
