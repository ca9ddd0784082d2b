-- Puts one node's report into the sorted lists, in one atomic step, unless a newer one is there.
-- Or writes the scores of the report that is there, after promises on the node have changed.
-- Or replaces what somebody else damaged, whatever order it has, unless that changed since it was read.
-- KEYS  nodes, gpus, reports, order, generation
-- ARGV  node, epoch, seq, report, node score, mode, order as read, scores of the GPUs
--       mode: 'report'; 'fill', the same while an empty list is filled; 'rescore', scores alone; 'mend'
--       order as read: for 'mend' the node's order as it was found; empty for none
--       scores of the GPUs: JSON, [score, member, ...] as texts, as ZADD takes them; one argument, because each
--       costs the placer more than its text
-- Returns 1 applied, 0 stale (nothing changed), -1 the list was lost (nothing changed).
-- Epoch and seq are compared as whole numbers of any size: a Lua number is exact only up to 2^53.

local function is_greater(a, b)
    if #a ~= #b then
        return #a > #b
    end
    return a > b
end

local node, epoch, seq, mode = ARGV[1], ARGV[2], ARGV[3], ARGV[6]
if mode ~= 'fill' and redis.call('EXISTS', KEYS[5]) == 0 then
    return -1
end
local last = redis.call('HGET', KEYS[4], node)
if mode == 'rescore' then
    if last ~= epoch .. ' ' .. seq then
        return 0
    end
else
    if mode == 'mend' then
        if (last or '') ~= ARGV[7] then
            return 0
        end
    elseif last then
        local last_epoch, last_seq = string.match(last, '^(%d+) (%d+)$')
        if last_epoch and (is_greater(last_epoch, epoch)
                or (last_epoch == epoch and not is_greater(seq, last_seq))) then
            return 0
        end
    end
    -- GPUs of the previous report may be gone. A damaged previous report must not fail this one: skip it.
    local previous = redis.call('HGET', KEYS[3], node)
    if previous then
        local readable, report = pcall(cjson.decode, previous)
        if readable and type(report) == 'table' and type(report.gpus) == 'table' then
            for _, gpu in ipairs(report.gpus) do
                if type(gpu) == 'table' then
                    redis.call('ZREM', KEYS[2], node .. '/' .. tostring(gpu.uuid))
                end
            end
        end
    end
    redis.call('HSET', KEYS[3], node, ARGV[4])
    redis.call('HSET', KEYS[4], node, epoch .. ' ' .. seq)
end
local scores = cjson.decode(ARGV[8])
for i = 1, #scores, 2 do
    redis.call('ZADD', KEYS[2], scores[i], scores[i + 1])
end
redis.call('ZADD', KEYS[1], ARGV[5], node)
return 1
