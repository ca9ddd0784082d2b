/* Writes functions that pass on their arguments: a table's row needs only the types of the parameters. */
#ifndef PLIMSOLL_EMULATOR_SIGNATURE_H
#define PLIMSOLL_EMULATOR_SIGNATURE_H

/* PARAMETERS(int, char) is `int a, char b`, and ARGUMENTS(int, char) is `a, b`; for up to 11 types. */
#define PARAMETERS(...) SIGNATURE_JOIN(PARAMETERS_, SIGNATURE_COUNT(__VA_ARGS__))(__VA_ARGS__)
#define ARGUMENTS(...) SIGNATURE_JOIN(ARGUMENTS_, SIGNATURE_COUNT(__VA_ARGS__))

/* A function that does the same as another one, whose parameters are of these types or wider ones. */
#define SAME(function, other, ...)                                                                           \
    CUresult function(PARAMETERS(__VA_ARGS__)) {                                                             \
        return other(ARGUMENTS(__VA_ARGS__));                                                                \
    }

#define SIGNATURE_JOIN(one, other) SIGNATURE_PASTE(one, other)
#define SIGNATURE_PASTE(one, other) one##other
#define SIGNATURE_COUNT(...) SIGNATURE_TWELFTH(__VA_ARGS__, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define SIGNATURE_TWELFTH(A, B, C, D, E, F, G, H, I, J, K, count, ...) count

#define PARAMETERS_1(A) A a
#define PARAMETERS_2(A, B) A a, B b
#define PARAMETERS_3(A, B, C) A a, B b, C c
#define PARAMETERS_4(A, B, C, D) A a, B b, C c, D d
#define PARAMETERS_5(A, B, C, D, E) A a, B b, C c, D d, E e
#define PARAMETERS_6(A, B, C, D, E, F) A a, B b, C c, D d, E e, F f
#define PARAMETERS_7(A, B, C, D, E, F, G) A a, B b, C c, D d, E e, F f, G g
#define PARAMETERS_8(A, B, C, D, E, F, G, H) A a, B b, C c, D d, E e, F f, G g, H h
#define PARAMETERS_9(A, B, C, D, E, F, G, H, I) A a, B b, C c, D d, E e, F f, G g, H h, I i
#define PARAMETERS_10(A, B, C, D, E, F, G, H, I, J) A a, B b, C c, D d, E e, F f, G g, H h, I i, J j
#define PARAMETERS_11(A, B, C, D, E, F, G, H, I, J, K) A a, B b, C c, D d, E e, F f, G g, H h, I i, J j, K k
#define ARGUMENTS_1 a
#define ARGUMENTS_2 a, b
#define ARGUMENTS_3 a, b, c
#define ARGUMENTS_4 a, b, c, d
#define ARGUMENTS_5 a, b, c, d, e
#define ARGUMENTS_6 a, b, c, d, e, f
#define ARGUMENTS_7 a, b, c, d, e, f, g
#define ARGUMENTS_8 a, b, c, d, e, f, g, h
#define ARGUMENTS_9 a, b, c, d, e, f, g, h, i
#define ARGUMENTS_10 a, b, c, d, e, f, g, h, i, j
#define ARGUMENTS_11 a, b, c, d, e, f, g, h, i, j, k

#endif
