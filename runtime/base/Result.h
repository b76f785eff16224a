// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors are values. Every fallible function of the project returns a Result<T> (or a Status, a Result of nothing);
// nothing is thrown across a component's boundary. This header depends on the standard library alone, so that every
// component, the runtime included, may use it.
#pragma once

#include <cassert>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace rl {

/// What went wrong, numbered as the command line's exit status and the C interface's return codes.
enum class Code { Ok = 0, Usage = 1, Invalid = 2, Unsupported = 3, Device = 4 };

/// An error with its place. `pointer` is a JSON pointer (RFC 6901) into the graph file, or "/name" for a tensor of a data
/// file; empty where no place applies. `file`, when known, is the file that the pointer points into.
struct Error {
  Code code = Code::Invalid;
  std::string pointer;
  std::string message;
  std::string file = {};

  /// "FILE:/pointer: message", with the parts that are empty left out. `fallbackFile` stands in for an empty `file`.
  std::string str(std::string_view fallbackFile = {}) const {
    std::string out(file.empty() ? fallbackFile : std::string_view(file));
    if (!pointer.empty())
      out += (out.empty() ? "" : ":") + pointer;
    if (!out.empty())
      out += ": ";
    return out + message;
  }
};

inline Error usageError(std::string message) { return {Code::Usage, {}, std::move(message)}; }
inline Error invalid(std::string pointer, std::string message) {
  return {Code::Invalid, std::move(pointer), std::move(message)};
}
inline Error unsupported(std::string pointer, std::string message) {
  return {Code::Unsupported, std::move(pointer), std::move(message)};
}
inline Error deviceError(std::string message) { return {Code::Device, {}, std::move(message)}; }

/// A T, or the Error that says why there is none.
template <class T> class [[nodiscard]] Result {
public:
  Result(T value) : state(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state.index() == 0; }
  explicit operator bool() const { return ok(); }
  T &operator*() & { return get(); }
  const T &operator*() const & { return const_cast<Result *>(this)->get(); }
  T &&operator*() && { return std::move(get()); }
  T *operator->() { return &get(); }
  const T *operator->() const { return &const_cast<Result *>(this)->get(); }
  const Error &error() const {
    assert(!ok());
    return std::get<1>(state);
  }
  Error takeError() {
    assert(!ok());
    return std::move(std::get<1>(state));
  }

private:
  T &get() {
    assert(ok());
    return *std::get_if<0>(&state);
  }
  std::variant<T, Error> state;
};

/// Success, or an Error.
class [[nodiscard]] Status {
public:
  Status() = default;
  Status(Error error) : failure(std::move(error)), failed(true) {}
  bool ok() const { return !failed; }
  explicit operator bool() const { return ok(); }
  const Error &error() const {
    assert(failed);
    return failure;
  }
  Error takeError() {
    assert(failed);
    return std::move(failure);
  }

private:
  Error failure;
  bool failed = false;
};

/// Returns from the enclosing function with the error of a Status or a Result, if it holds one.
#define RL_TRY(expr)                                                                                                   \
  do {                                                                                                                 \
    if (auto rlTry = (expr); !rlTry)                                                                                   \
      return rlTry.takeError();                                                                                        \
  } while (false)

/// `RL_ASSIGN(auto x, f())`: declares x from a Result, or returns its error.
#define RL_CONCAT_(a, b) a##b
#define RL_CONCAT(a, b) RL_CONCAT_(a, b)
#define RL_ASSIGN(decl, expr)                                                                                          \
  auto RL_CONCAT(rlResult, __LINE__) = (expr);                                                                         \
  if (!RL_CONCAT(rlResult, __LINE__))                                                                                  \
    return RL_CONCAT(rlResult, __LINE__).takeError();                                                                  \
  decl = *std::move(RL_CONCAT(rlResult, __LINE__))

} // namespace rl
