// Reading exported functions of JAX: as much of the flatbuffer as says what the module takes and
// where it runs.
#include "jax_export.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "bytecode.h"
#include "portable.h"
#include "spi.h"

namespace postern::internal::imported {

namespace {

template <class T>
T number_at(std::string_view bytes, std::size_t at) {
  if (at > bytes.size() || bytes.size() - at < sizeof(T)) refuse_cut("it points behind its end");
  T out;
  std::memcpy(&out, bytes.data() + at, sizeof(T));
  return out;
}

/// A table of a flatbuffer. Fields are numbered from 0; one that is not there has its default.
class Table {
 public:
  static Table root(std::string_view bytes) { return {bytes, number_at<std::uint32_t>(bytes, 0)}; }

  template <class T>
  T number(int field, T otherwise = 0) const {
    const auto at = find(field);
    if (at) return number_at<T>(bytes_, at);
    return otherwise;
  }
  std::string_view bytes(int field) const {
    const auto at = find(field);
    if (at) return vector(at, 1);
    return std::string_view();
  }
  /// All entries of a list may point to one long text.
  std::vector<std::string> strings(int field) const {
    std::vector<std::string> out;
    std::size_t total = 0;
    for (const std::size_t at : places(field, 4)) {
      total += out.emplace_back(vector(at, 1)).size();
      if (total > bytes_.size()) refuse_cut("its texts lie in each other");
    }
    return out;
  }
  std::vector<Table> tables(int field) const {
    std::vector<Table> out;
    for (const std::size_t at : places(field, 4)) out.push_back({bytes_, follow(at)});
    return out;
  }
  std::optional<Table> table(int field) const {
    if (const auto at = find(field)) return Table(bytes_, follow(at));
    return std::nullopt;
  }
  template <class T>
  std::vector<T> numbers(int field) const {
    std::vector<T> out;
    for (const std::size_t at : places(field, sizeof(T))) out.push_back(number_at<T>(bytes_, at));
    return out;
  }

 private:
  Table(std::string_view bytes, std::size_t at) : bytes_(bytes), at_(at) {
    // The list of fields lies before the table or behind it.
    const auto back = number_at<std::int32_t>(bytes, at);
    fields_ = static_cast<std::size_t>(static_cast<std::int64_t>(at) - back);
    fields_size_ = number_at<std::uint16_t>(bytes, fields_);
  }

  std::size_t find(int field) const {
    const std::size_t entry = 4 + 2 * static_cast<std::size_t>(field);
    if (entry + 2 > fields_size_) return 0;
    const auto offset = number_at<std::uint16_t>(bytes_, fields_ + entry);
    if (offset) return at_ + offset;
    return 0;
  }
  std::size_t follow(std::size_t at) const { return at + number_at<std::uint32_t>(bytes_, at); }
  std::string_view vector(std::size_t at, std::size_t size) const {
    const std::size_t to = follow(at), count = number_at<std::uint32_t>(bytes_, to);
    if (count > (bytes_.size() - to - 4) / size) refuse_cut("a list is longer than the file");
    return bytes_.substr(to + 4, count * size);
  }
  /// Where the elements of that list are.
  std::vector<std::size_t> places(int field, std::size_t size) const {
    std::vector<std::size_t> out;
    const auto at = find(field);
    if (!at) return out;
    const std::string_view all = vector(at, size);
    for (std::size_t i = 0; i < all.size(); i += size)
      out.push_back(static_cast<std::size_t>(all.data() - bytes_.data()) + i);
    return out;
  }

  std::string_view bytes_;
  std::size_t at_, fields_ = 0, fields_size_ = 0;
};

// Fields by number.
namespace exported {
enum {
  serialization_version = 0,
  in_tree = 2,
  in_avals = 3,
  out_tree = 4,
  devices_short = 6,
  platforms = 9,
  module = 13,
  calling_convention = 14,
  kept = 15,
  vjp = 17
};
enum { devices = 18, unique_avals = 19, in_aval_indices = 22 };
}  // namespace exported
namespace aval {
enum { shape = 1, dtype = 2 };
}
namespace tree {
enum { kind = 0, children = 1, names = 2 };
enum Kind : std::uint8_t { leaf, none, tuple, list, dict, custom };
}  // namespace tree

/// By JAX's number. A typed key of jax.random is as many words; float0 is what the module takes for
/// it.
struct Number {
  DType dtype;
  std::int64_t words = 0;
};
constexpr Number number_kinds[] = {{DType::pred},       {DType::s8},         {DType::s16},
                                   {DType::s32},        {DType::s64},        {DType::u8},
                                   {DType::u16},        {DType::u32},        {DType::u64},
                                   {DType::f16},        {DType::f32},        {DType::f64},
                                   {DType::c64},        {DType::c128},       {DType::bf16},
                                   {DType::s4},         {DType::u4},         {DType::f8e4m3b11fnuz},
                                   {DType::f8e4m3fn},   {DType::f8e4m3fnuz}, {DType::f8e5m2},
                                   {DType::f8e5m2fnuz}, {DType::pred},       {DType::f8e4m3},
                                   {DType::f8e3m4},     {DType::f8e8m0fnu},  {DType::f4e2m1fn},
                                   {DType::u32, 2},     {DType::u32, 4},     {DType::u32, 4}};

Type type_of(const Table& value) {
  const auto number = static_cast<std::size_t>(value.number<std::uint8_t>(aval::dtype));
  if (number >= std::size(number_kinds))
    throw Error(
        ErrorCode::unimplemented,
        fmt::format("an argument has JAX's dtype number {}, which cannot be passed", number));
  Dims dims;
  for (const std::string& extent : value.strings(aval::shape)) {
    std::int64_t n = -1;
    const auto [end, error] = std::from_chars(extent.data(), extent.data() + extent.size(), n);
    if (error != std::errc() || end != extent.data() + extent.size() || n < 0) n = -1;  // "2*n"
    dims.push_back(n);
  }
  if (number_kinds[number].words) dims.push_back(number_kinds[number].words);
  Type out{number_kinds[number].dtype, dims};
  std::ranges::replace(dims, -1, 1);  // there may be too many axes, open or not
  static_cast<void>(make_type(out.dtype, std::move(dims)).byte_size());
  return out;
}

/// The paths of a tree's leaves, as JAX writes them. A damaged tree may be deep, and its nodes may
/// be shared: a few of them make any number of leaves, and of text.
class Leaves {
 public:
  /// `most`: how many there can be.
  explicit Leaves(std::size_t most) : most_(most) {}
  void add(const Table& node, const std::string& path, int depth = 0) {
    constexpr int deepest = 64;
    count(path.size());
    const auto kind = node.number<std::uint8_t>(tree::kind);
    if (kind == tree::none || paths_.size() > most_ || depth > deepest) return;
    if (kind == tree::leaf) return paths_.push_back(path);
    const std::vector<Table> children = node.tables(tree::children);
    std::vector<std::string> names;
    if (kind == tree::dict) names = node.strings(tree::names);
    for (const std::string& name : names) count(name.size());
    for (std::size_t i = 0; i < children.size(); ++i)
      add(children[i],
          i < names.size() ? fmt::format("{}['{}']", path, names[i])
                           : fmt::format("{}[{}]", path, i),
          depth + 1);
  }
  std::vector<std::string> take() { return std::move(paths_); }

 private:
  /// Notes a node or name, with as much text.
  void count(std::size_t text) {
    constexpr std::size_t each = 64, most = 1 << 26;
    work_ += each + text;
    if (work_ > most) refuse_damaged("a tree has too many nodes");
  }

  const std::size_t most_;
  std::size_t work_ = 0;
  std::vector<std::string> paths_;
};

/// Of the function's arguments, `((args...), {kwargs...})`.
std::vector<std::string> argument_names(const Table& root, std::size_t most) {
  Leaves out(most);
  const std::vector<Table> both = root.tables(tree::children);
  for (std::size_t i = 0; i < both.size(); ++i) out.add(both[i], i == 0 ? "args" : "kwargs");
  return out.take();
}

void check_versions(const Table& root) {
  const auto version = root.number<std::uint16_t>(exported::serialization_version);
  const auto convention = root.number<std::uint16_t>(exported::calling_convention);
  if (version < 2 || version > 11 || convention < 9 || convention > 10)
    throw Error(ErrorCode::unimplemented,
                fmt::format("it was exported by JAX with format {} and calling convention {}; this "
                            "reader knows formats 2 to 11 and "
                            "conventions 9 and 10",
                            version, convention));
  const std::uint64_t devices = root.number<std::uint32_t>(
      exported::devices, root.number<std::uint16_t>(exported::devices_short));
  if (devices > 1)
    throw Error(ErrorCode::unimplemented,
                fmt::format("it was exported for {} devices; one is what can be loaded", devices));
}

Imported read_exported(const Table& root, const std::string& name, int order) {
  const std::string_view module = root.bytes(exported::module);
  if (!module.starts_with(bytecode_magic)) refuse_damaged("it holds no module");
  check_versions(root);
  Exported out;
  const auto indices = root.numbers<std::uint32_t>(exported::in_aval_indices);
  if (indices.empty()) {  // as JAX wrote them before it counted each type once
    for (const Table& value : root.tables(exported::in_avals)) out.inputs.push_back(type_of(value));
  } else {
    const std::vector<Table> values = root.tables(exported::unique_avals);
    for (const std::uint32_t i : indices) {
      if (i >= values.size()) refuse_damaged("an argument has no type");
      out.inputs.push_back(type_of(values[i]));
    }
  }
  for (const std::uint16_t i : root.numbers<std::uint16_t>(exported::kept)) {
    if (i >= out.inputs.size())
      refuse_damaged("the module takes arguments that the function does not have");
    out.kept.push_back(i);
  }
  out.platforms = root.strings(exported::platforms);
  if (!platform_position(out.platforms))
    throw Error(ErrorCode::failed_precondition,
                fmt::format("it was exported for {}, this process runs on {}",
                            fmt::join(out.platforms, ", "), platform_name()));
  constexpr std::size_t most_results = 1 << 20;
  if (const auto in = root.table(exported::in_tree))
    out.input_names = argument_names(*in, out.inputs.size());
  if (const auto results = root.table(exported::out_tree)) {
    Leaves leaves(most_results);
    leaves.add(*results, "result");
    out.output_names = leaves.take();
  }
  Imported read = read_portable(module, name, "main", &out);
  constexpr int most_orders = 16;
  if (const auto vjp = root.table(exported::vjp); vjp && order < most_orders) try {
      read.vjp = std::make_shared<const Imported>(read_exported(*vjp, name, order + 1));
    } catch (const Error&) {  // the function itself is none the worse
    }
  return read;
}

}  // namespace

Imported read_jax_export(std::string_view bytes, const std::string& name) {
  return read_exported(Table::root(bytes), name, 0);
}

}  // namespace postern::internal::imported
