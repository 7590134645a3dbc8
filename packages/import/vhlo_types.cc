// VHLO's types, by the numbers that bytecode gives them.
#include <algorithm>

#include "vhlo.h"

namespace postern::internal::imported {

namespace {

struct Element {
  std::uint64_t code;
  const char *vhlo, *builtin;
  std::size_t size;  // of an element in a constant, 0 where we write none
};
constexpr Element elements[] = {{0, "bool_v1", "i1", 1},
                                {2, "bf16_v1", "bf16", 2},
                                {3, "f16_v1", "f16", 2},
                                {4, "f32_v1", "f32", 4},
                                {5, "f64_v1", "f64", 8},
                                {6, "f8E4M3FN_v1", "f8E4M3FN", 1},
                                {7, "f8E5M2_v1", "f8E5M2", 1},
                                {9, "index_v1", "index", 8},
                                {10, "i4_v1", "i4", 1},
                                {11, "i8_v1", "i8", 1},
                                {12, "i16_v1", "i16", 2},
                                {13, "i32_v1", "i32", 4},
                                {14, "i64_v1", "i64", 8},
                                {15, "ui4_v1", "ui4", 1},
                                {16, "ui8_v1", "ui8", 1},
                                {17, "ui16_v1", "ui16", 2},
                                {18, "ui32_v1", "ui32", 4},
                                {19, "ui64_v1", "ui64", 8},
                                {22, "token_v1", "!stablehlo.token", 0},
                                {26, "witness_v1", "", 0},
                                {27, "f8E4M3FNUZ_v1", "f8E4M3FNUZ", 1},
                                {28, "f8E5M2FNUZ_v1", "f8E5M2FNUZ", 1},
                                {29, "f8E4M3B11FNUZ_v1", "f8E4M3B11FNUZ", 1},
                                {31, "i2_v1", "i2", 1},
                                {32, "ui2_v1", "ui2", 1},
                                {33, "none_v1", "", 0},
                                {34, "tf31_v1", "tf32", 0},
                                {35, "f8E4M3_v1", "f8E4M3", 1},
                                {36, "f8E3M4_v1", "f8E3M4", 1},
                                {37, "f4E2M1FN_v1", "f4E2M1FN", 1},
                                {38, "f6E2M3FN_v1", "f6E2M3FN", 1},
                                {39, "f6E3M2FN_v1", "f6E3M2FN", 1},
                                {40, "f8E8M0FNU_v1", "f8E8M0FNU", 1}};

std::string extent_text(std::int64_t extent) {
  if (extent < 0) return "?";
  return std::to_string(extent);
}

}  // namespace

void refuse_newer(std::string_view what) {
  throw Error(ErrorCode::unimplemented,
              fmt::format("{} is newer than this reader, or not of StableHLO", what));
}

std::string extents_text(ByteReader& in, std::vector<std::int64_t>* kept) {
  Separator comma;
  std::string out;
  for (std::size_t n = in.count(); n; --n) {
    const std::int64_t extent = in.signed_number();
    if (kept) kept->push_back(extent);
    out += comma();
    out += extent_text(extent);
  }
  return out;
}

std::string vhlo_function(std::string_view inputs, std::string_view outputs) {
  if (inputs.empty()) inputs = "()";
  if (outputs.empty()) outputs = "()";
  return fmt::format("!vhlo.func_v1<({}) -> {}>", inputs, outputs);
}

std::string Vhlo::list(std::span<const std::size_t> types) {
  Separator comma;
  std::string out;
  for (const std::size_t t : types) {
    const std::string& text = type(t).text;
    if (out.size() > budget_) spend(out.size());
    out += comma();
    out += text;
  }
  return out;
}

VhloType Vhlo::read_type(std::size_t index) {
  const Bytecode::Entry& entry = code_.types[index];
  if (entry.dialect != "vhlo" || !entry.custom)
    refuse_newer(fmt::format("a type of '{}'", entry.dialect));
  ByteReader in(entry.bytes);
  VhloType out;
  const std::uint64_t code = in.number();
  auto next_types = [&] {
    std::vector<std::size_t> all(in.count());
    for (std::size_t& t : all) t = in.index(code_.types.size(), "type");
    return all;
  };
  if (const auto* e = std::ranges::find(elements, code, &Element::code); e != std::end(elements)) {
    out.text = fmt::format("!vhlo.{}", e->vhlo);
    out.builtin = e->builtin;
    out.element_size = e->size;
    out.is_token = code == 22;
  } else if (code == 1) {
    const VhloType& part = next_type(in);
    out.text = fmt::format("!vhlo.complex_v1<{}>", part.text);
    out.builtin = fmt::format("complex<{}>", part.builtin);
    out.element_size = 2 * part.element_size;
  } else if (code == 8) {
    out.inputs = next_types();
    out.outputs = next_types();
    out.text = vhlo_function(list(out.inputs), list(out.outputs));
  } else if (code == 20 || code == 21) {
    read_tensor_type(out, in, code == 21);
  } else if (code == 23) {
    out.text = fmt::format("!vhlo.tuple_v1<{}>", list(next_types()));
  } else if (code == 24 || code == 30) {
    throw Error(ErrorCode::unimplemented, "values are quantized, which cannot be run");
  } else if (code == 25) {
    throw Error(ErrorCode::unimplemented, "tensors have no fixed type");
  } else if (code == 42) {
    out.text = fmt::format("!vhlo.future_v1<[{}]>", list(next_types()));
  } else {
    refuse_newer(fmt::format("VHLO's type number {}", code));
  }
  return out;
}

void Vhlo::read_tensor_type(VhloType& out, ByteReader& in, bool with_encoding) {
  std::string encoding;  // as it stands behind the element
  if (with_encoding) {
    const auto& found = attribute(in.index(code_.attributes.size(), "attribute"));
    if (!found.text.empty()) encoding = ", " + found.text;
  }
  extents_text(in, &out.dims);
  const VhloType& element = next_type(in);
  if (element.is_tensor || out.dims.size() > 255) refuse_damaged("there is no such tensor");
  std::string dims;
  for (const std::int64_t extent : out.dims) dims += extent_text(extent) + 'x';
  out.text = fmt::format("!vhlo.tensor_v1<{}{}{}>", dims, element.text, encoding);
  out.builtin = fmt::format("tensor<{}{}>", dims, element.builtin);
  out.element_size = element.element_size;
  out.is_tensor = true;
}

}  // namespace postern::internal::imported
